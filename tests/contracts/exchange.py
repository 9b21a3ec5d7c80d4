"""The contract of an exchange, as checks that run over any implementation; see ``sparse_ring/exchange/base.py``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from sparse_ring.config import Config
from sparse_ring.engine.link import Link
from sparse_ring.exchange.base import Gather, Reduce
from sparse_ring.observe.metrics import Metrics
from sparse_ring.transport.threads import ThreadWorld
from tests.helpers import same_bits

Array = NDArray[Any]
Result = TypeVar("Result")

UFUNCS = {"Sum": np.add, "Min": np.minimum, "Max": np.maximum}


def run_links(size: int, function: Callable[[Link], Result]) -> tuple[list[Result], ThreadWorld]:
    """Run ``function`` on ``size`` bare links, each on a thread; re-raises the first failure."""
    world = ThreadWorld(size)
    results: dict[int, Result] = {}
    failures: list[Exception] = []

    def run(rank: int) -> None:
        config = Config(stall_shutdown_time_seconds=20.0)
        try:
            results[rank] = function(Link(world.transport(rank), config, Metrics()))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if failures:
        raise failures[0]
    assert not any(thread.is_alive() for thread in threads)
    return [results[rank] for rank in range(size)], world


def to_bfloat16(values: Array) -> Array:
    """Round float32 to bfloat16 and back, with torch: not the code under test."""
    return torch.from_numpy(values).bfloat16().float().numpy()


def ring_twin(ranks: Sequence[Array], op: str, rounding: Callable[[Array], Array] = lambda values: values) -> Array:
    """Reduce one array of all ranks in the ring's order: part c starts at rank c and goes round."""
    size, numel = len(ranks), len(ranks[0])
    out = np.empty_like(ranks[0])
    start = 0
    for chunk in range(size):
        part = slice(start, start + numel // size + (chunk < numel % size))
        total = rounding(ranks[chunk][part].copy())
        for step in range(1, size):
            with np.errstate(all="ignore"):
                total = rounding(UFUNCS[op](total, ranks[(chunk + step) % size][part]))
        out[part] = total
        start = part.stop
    return out


def check_reduce(
    make: Callable[[], Reduce],
    inputs: Sequence[Sequence[Array]],
    op: str,
    rounding: Callable[[Array], Array] = lambda values: values,
) -> None:
    """``inputs[rank][i]``: fused and unfused give the twin's bits on all ranks, and no transfer is left over."""
    size = len(inputs)

    def reduced(link: Link) -> tuple[list[Array], list[Array]]:
        exchange = make()
        fused = [array.copy() for array in inputs[link.rank]]
        exchange.allreduce(fused, op, link, "fused")
        single = [array.copy() for array in inputs[link.rank]]
        for array in single:
            exchange.allreduce([array], op, link, "single")
        return fused, single

    results, world = run_links(size, reduced)
    expected = [
        ring_twin(arrays, op, rounding if size > 1 else lambda values: values) for arrays in zip(*inputs, strict=True)
    ]
    for fused, single in results:
        assert all(same_bits(array, twin) for array, twin in zip(fused, expected, strict=True))
        assert all(same_bits(array, twin) for array, twin in zip(single, expected, strict=True))
    assert world.unmatched() == 0


def check_gather(make: Callable[[], Gather], messages: Sequence[Sequence[bytes]]) -> None:
    """``messages[call][rank]``: each arrives once on every rank, the own one first, and stays until the call returns."""
    size = len(messages[0])

    def gathered(link: Link) -> list[list[tuple[int, bytes]]]:
        exchange = make()
        calls = []
        for call in messages:
            seen: list[tuple[int, NDArray[np.uint8]]] = []
            message = np.frombuffer(call[link.rank], dtype=np.uint8).copy()
            most = [len(one) + 3 for one in call]
            exchange.allgather(message, most, link, "messages", lambda rank, data, seen=seen: seen.append((rank, data)))
            calls.append([(rank, data.tobytes()) for rank, data in seen])
        return calls

    results, world = run_links(size, gathered)
    for own, calls in enumerate(results):
        for call, seen in zip(messages, calls, strict=True):
            assert [rank for rank, _ in seen] == [(own - step) % size for step in range(size)]
            assert all(data == call[rank] for rank, data in seen)
    assert world.unmatched() == 0
