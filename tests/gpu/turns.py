"""A faster and stricter way for numba's simulator to run the threads of a block: they take turns.

The simulator lets a block's threads run at once and polls them until all wait at a barrier, which takes most of its time; and
where two threads ask for a shared array at once, each gets its own. Here one thread runs at a time, up to the next barrier,
and the order is another one between any two barriers, so that a missing barrier shows.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numba.cuda.simulator.kernel import BlockManager
from numba.cuda.simulator.kernelapi import Dim3, FakeCUDAShared


class AbortedError(Exception):
    """Another thread of the block has failed."""


class Turn(threading.Thread):
    """Stands for the thread of a block: the simulator's kernels ask the current thread who and where it is."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.mine, self.back = threading.Lock(), threading.Lock()
        self.mine.acquire()
        self.back.acquire()
        self.work: Callable[[], None] = lambda: None
        self.failure: Exception | None = None
        self.finished = self.aborted = False
        self.start()

    def prepare(self, manager: Any, block: tuple[int, int, int], number: int, work: Callable[[], None]) -> None:
        self._manager, self.work, self.failure = manager, work, None
        self.finished = self.aborted = False
        self.blockIdx, self.threadIdx, self.thread_id = Dim3(*block), Dim3(number, 0, 0), number

    def take(self) -> None:
        """Let the thread run up to its next barrier, or its end."""
        self.mine.release()
        self.back.acquire()

    def run(self) -> None:
        while True:
            self.mine.acquire()
            try:
                self.work()
            except Exception as error:
                self.failure = error
            self.finished = True
            self.back.release()

    def syncthreads(self) -> None:
        self.back.release()
        self.mine.acquire()
        if self.aborted:
            raise AbortedError


POOL: list[Turn] = []
ORDER = random.Random(0)


def run_block(manager: Any, block: tuple[int, int, int], *arguments: Any) -> None:
    """Run one block."""
    count = manager._block_dim[0]
    POOL.extend(Turn() for _ in range(count - len(POOL)))
    live = POOL[:count]
    for number, turn in enumerate(live):
        turn.prepare(manager, block, number, lambda: manager._f(*arguments))
    while live:
        ORDER.shuffle(live)
        for turn in live:
            turn.take()
            if turn.failure is not None:
                _abort(live)
                raise turn.failure
        live = [turn for turn in live if not turn.finished]


def _abort(turns: list[Turn]) -> None:
    for turn in turns:
        while not turn.finished:
            turn.aborted = True
            turn.take()


def shared_array(shared: Any, shape: Any, dtype: Any, alignment: None = None) -> Any:
    """Return the array of the line that asks for it, by its frame: reading the stack as text takes longer than most kernels."""
    caller = sys._getframe(1)
    place = caller.f_code, caller.f_lineno
    if place not in shared._allocations:
        shared._allocations[place] = np.empty(shape, dtype)
    return shared._allocations[place]


def take_turns(monkeypatch: Any) -> None:
    """Have the simulator run blocks this way."""
    monkeypatch.setattr(BlockManager, "run", run_block)
    monkeypatch.setattr(FakeCUDAShared, "array", shared_array)
