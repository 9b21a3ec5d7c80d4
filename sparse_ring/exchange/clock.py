"""How far the ranks' clocks are apart: rank 0 asks each other rank for its time, several times."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from sparse_ring.engine.link import Link
from sparse_ring.engine.operation import Agreed, Operation, Request
from sparse_ring.observe.timeline import Clock, now

QUESTIONS = 16

Words = NDArray[np.int64]


class ClockComparison(Operation):
    """Compare every rank's clock with rank 0's; the handle's result is this rank's ``Clock``.

    An answer was read between the moments at which rank 0 asked and heard it, so that the middle of these is at most half a
    round trip off. The quickest of ``QUESTIONS`` answers counts.

    clock
        Gives nanoseconds.
    """

    def __init__(self, name: str, clock: Callable[[], int] = now) -> None:
        self.clock = clock
        self.request = Request(name=name, kind="clock")
        self.nbytes = 0

    @classmethod
    def run(cls, batch: Sequence[Agreed], link: Link) -> list[Clock]:
        """Ask rank after rank; each waits for its turn."""
        operations = [cast(ClockComparison, agreed.operation) for agreed in batch]
        return [operation._ask(link) if link.rank == 0 else operation._answer(link) for operation in operations]

    def _ask(self, link: Link) -> Clock:
        # Below 2**53: the number passes through JSON, whose readers may hold it as a float.
        origin, run = self.clock(), secrets.randbelow(1 << 53)
        what = f"clock comparison '{self.request.name}'"
        for peer in range(1, link.size):
            answers = [self._question(link, peer, what) for _ in range(QUESTIONS)]
            error, offset = min(answers)
            _send(link, [origin, offset, error, run], peer, what)
        return Clock(origin=origin, run=run)

    def _question(self, link: Link, peer: int, what: str) -> tuple[int, int]:
        asked = self.clock()
        _send(link, [0], peer, what)
        told = int(_receive(link, 1, peer, what)[0])
        heard = self.clock()
        return (heard - asked + 1) // 2, told - (asked + heard) // 2

    def _answer(self, link: Link) -> Clock:
        what = f"clock comparison '{self.request.name}'"
        for _ in range(QUESTIONS):
            _receive(link, 1, 0, what)
            _send(link, [self.clock()], 0, what)
        origin, offset, error, run = (int(word) for word in _receive(link, 4, 0, what))
        return Clock(origin=origin, offset=offset, error=error, run=run)


def _send(link: Link, words: Sequence[int], peer: int, what: str) -> None:
    data = np.array(words, dtype="<i8")
    link.wait([link.send(data.view(np.uint8), peer)], what, (peer,))


def _receive(link: Link, count: int, peer: int, what: str) -> Words:
    words = np.zeros(count, dtype="<i8")
    link.wait([link.recv(words.view(np.uint8), peer)], what, (peer,))
    return words
