"""Ranks as threads with an engine each, and the smallest operation that uses the link."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from sparse_ring.config import Config
from sparse_ring.engine.engine import Engine
from sparse_ring.engine.link import Link
from sparse_ring.engine.operation import Agreed, Operation, Request
from sparse_ring.observe.metrics import Metrics
from sparse_ring.transport.base import Transport
from sparse_ring.transport.threads import ThreadWorld

JOIN_SECONDS = 120.0


class Gather(Operation):
    """Brings one byte of every rank to all ranks; an absent rank gives 0.

    The result is ``(bytes by rank, names of the batch, whether each rank was absent)``.
    """

    def __init__(self, name: str, value: int = 0, *, key: Hashable = None, nbytes: int = 1, **request: Any) -> None:
        self.request = Request(**{"name": name, "kind": "allgather", "dtype": "uint8", **request})
        self.value, self.key, self.nbytes = value, key, nbytes

    @property
    def fusion_key(self) -> Hashable | None:
        return self.key

    @classmethod
    def run(cls, batch: Sequence[Agreed], link: Link) -> list[Any]:
        mine = np.array([0 if item.requests[link.rank].absent else item.operation.value for item in batch], np.uint8)
        table = np.zeros((link.size, len(batch)), dtype=np.uint8)
        table[link.rank] = mine
        others = [rank for rank in range(link.size) if rank != link.rank]
        receives = [link.recv(table[rank], rank) for rank in others]
        sends = [link.send(mine, rank) for rank in others]
        names = [item.operation.request.name for item in batch]
        link.wait([*receives, *sends], f"gather of {names}", others)
        return [
            (table[:, column].tolist(), names, [request.absent for request in item.requests])
            for column, item in enumerate(batch)
        ]


class Local(Operation):
    """Calls a function on the engine's thread and gives its result; a raised exception is the batch's."""

    nbytes = 0

    def __init__(self, name: str, function: Callable[[Link], Any]) -> None:
        self.request = Request(name, "barrier")
        self.function = function

    @classmethod
    def run(cls, batch: Sequence[Agreed], link: Link) -> list[Any]:
        return [item.operation.function(link) for item in batch]


def run_ranks(
    size: int,
    program: Callable[[Engine], Any],
    config: Config | Sequence[Config] | None = None,
    *,
    world: ThreadWorld | None = None,
    wrap: Callable[[Transport], Transport] = lambda transport: transport,
    close: bool = True,
) -> list[Any]:
    """Run ``program`` with an engine on each rank; return its results by rank, or raise the first rank's error.

    ``config`` may be one for each rank.
    """
    world = world or ThreadWorld(size)
    results: list[Any] = [None] * size
    errors: list[BaseException] = []

    def rank(number: int) -> None:
        try:
            own = config[number] if isinstance(config, Sequence) else config or Config()
            engine = Engine(wrap(world.transport(number)), own, Metrics())
            try:
                results[number] = program(engine)
            finally:
                if close:
                    engine.close()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=rank, args=(number,), daemon=True) for number in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(JOIN_SECONDS)
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads), "a rank hangs"
    return results
