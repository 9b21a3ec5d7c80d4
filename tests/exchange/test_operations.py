from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sparse_ring.errors import MessageError
from sparse_ring.exchange import broadcast
from sparse_ring.exchange.allgather import Allgather
from sparse_ring.exchange.broadcast import Broadcast
from sparse_ring.session import Session
from tests.contracts.exchange import run_links
from tests.helpers import run_ranks


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("way", ["_tree", "_chain"])
def test_both_ways_of_broadcast_reach_every_rank_from_every_root(way: str, size: int) -> None:
    def call(link: Any) -> list[list[int]]:
        results = []
        for root in range(size):
            arrays = [np.full(n, link.rank, np.uint8) for n in (3, 0, 1)]
            getattr(broadcast, way)(arrays, root, link, "x")
            results.append(np.concatenate(arrays).tolist())
        return results

    results, world = run_links(size, call)
    assert results == [[[root] * 4 for root in range(size)]] * size
    assert world.unmatched() == 0


def test_a_large_broadcast_is_sent_once_by_all_but_the_last() -> None:
    numel = 3 * broadcast.SEGMENT_BYTES + 17

    def call(session: Session) -> tuple[int, bool]:
        before = session.metrics.sent_bytes
        data = np.arange(numel, dtype=np.uint64).astype(np.uint8) + np.uint8(session.rank)
        session.submit(Broadcast("x", data, root=1, dtype="uint8", shape=data.shape)).wait()
        correct = bool((data == np.arange(numel, dtype=np.uint64).astype(np.uint8) + np.uint8(1)).all())
        return session.metrics.sent_bytes - before, correct

    assert run_ranks(3, call) == [(0, True), (numel, True), (numel, True)]


def test_allgather_checks_lengths_against_the_agreed_shapes() -> None:
    def call(session: Session) -> str:
        # The second rank's data has a row less than its shape says.
        rows = 3
        data = np.zeros(2 * (rows - (session.rank == 1)), np.uint8)
        operation = Allgather("x", data, dtype="uint8", shape=(rows, 2), row_bytes=2, mesh=session.exchanges.messages)
        with pytest.raises(MessageError) as caught:
            session.submit(operation).wait()
        data = np.zeros(2, np.uint8)
        operation = Allgather("x", data, dtype="uint8", shape=(1, 2), row_bytes=2, mesh=session.exchanges.messages)
        assert session.submit(operation).wait().rows == (1, 1)
        return str(caught.value)

    text = "Message from rank 1: allgather 'x': 4 bytes came, but the agreed shape has 6."
    assert run_ranks(2, call) == [text] * 2


def test_allgather_needs_a_dimension() -> None:
    def call(session: Session) -> None:
        with pytest.raises(ValueError, match=r"this tensor has none; reshape it to \(1,\)"):
            Allgather(
                "x", np.zeros(4, np.uint8), dtype="float32", shape=(), row_bytes=4, mesh=session.exchanges.messages
            )

    run_ranks(1, call)
