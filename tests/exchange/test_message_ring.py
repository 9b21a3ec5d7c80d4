from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparse_ring.errors import MessageError
from sparse_ring.exchange.message_ring import MessageRing
from tests.contracts.exchange import check_gather, run_links


@given(data=st.data(), size=st.integers(1, 4))
@settings(max_examples=30, deadline=None)
def test_every_message_reaches_every_rank(data: Any, size: int) -> None:
    calls = data.draw(st.lists(st.lists(st.binary(max_size=60), min_size=size, max_size=size), min_size=1, max_size=3))
    check_gather(MessageRing, calls)


def test_long_messages_of_different_lengths() -> None:
    lengths = [(300_000, 1, 70_000), (0, 300_000, 65_537), (300_001, 300_001, 300_001)]
    check_gather(MessageRing, [[bytes([rank + 1]) * n for rank, n in enumerate(call)] for call in lengths])


def test_a_message_past_the_limit_names_its_rank_on_all_ranks_and_nothing_moves() -> None:
    def call(link: Any) -> tuple[str, int, list[int]]:
        ring = MessageRing()
        message = np.zeros(10 + 5 * (link.rank == 1), np.uint8)
        with pytest.raises(MessageError) as caught:
            ring.allgather(message, link, "bucket", lambda rank, data: None, limit_bytes=12)
        sent = link.metrics.sent_bytes
        seen: list[int] = []
        ring.allgather(message, link, "bucket", lambda rank, data: seen.append(len(data)), limit_bytes=15)
        return str(caught.value), sent, sorted(seen)

    results, world = run_links(3, call)
    text = "Message from rank 1: bucket: 15 bytes, but at most 12 were agreed."
    assert results == [(text, 16, [10, 10, 15])] * 3
    assert world.unmatched() == 0


def test_an_error_of_the_receiver_waits_for_the_ring() -> None:
    def call(link: Any) -> tuple[str, list[int]]:
        ring, seen = MessageRing(), []

        def arrived(rank: int, data: Any) -> None:
            seen.append(rank)
            if link.rank == 0 and rank == 2:
                raise RuntimeError(f"rank {rank} is damaged")

        try:
            ring.allgather(np.full(100_000, link.rank, np.uint8), link, "x", arrived)
        except RuntimeError as error:
            return str(error), seen
        return "", seen

    results, world = run_links(3, call)
    assert results == [("rank 2 is damaged", [0, 2]), ("", [1, 0, 2]), ("", [2, 1, 0])]
    assert world.unmatched() == 0


def test_a_shorter_message_than_announced_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = MessageRing._lengths

    def lying(self: MessageRing, own: int, link: Any, what: str) -> list[int]:
        return honest(self, own + (link.rank == 0), link, what)

    def call(link: Any) -> str:
        try:
            MessageRing().allgather(np.zeros(4, np.uint8), link, "x", lambda rank, data: None)
        except MessageError as error:
            return str(error)
        return ""

    monkeypatch.setattr(MessageRing, "_lengths", lying)
    assert run_links(2, call)[0] == ["", "Message from rank 0: x: 5 bytes were announced, but 4 came."]


def test_buffers_are_used_again() -> None:
    def addresses(link: Any) -> list[int]:
        ring, seen = MessageRing(), []
        for length in (1000, 1100, 50):
            ring.allgather(
                np.zeros(length, np.uint8), link, "x",
                lambda rank, data: seen.append(data.ctypes.data) if rank != link.rank else None,
            )  # fmt: skip
        return seen

    for seen in run_links(2, addresses)[0]:
        assert len(set(seen)) == 1
