from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparse_ring.errors import MessageError
from sparse_ring.exchange.message_mesh import MessageMesh
from tests.contracts.exchange import check_gather, run_links


@given(data=st.data(), size=st.integers(1, 4))
@settings(max_examples=30, deadline=None)
def test_every_message_reaches_every_rank(data: Any, size: int) -> None:
    calls = data.draw(st.lists(st.lists(st.binary(max_size=60), min_size=size, max_size=size), min_size=1, max_size=3))
    check_gather(MessageMesh, calls)


def test_long_messages_of_different_lengths() -> None:
    lengths = [(300_000, 1, 70_000), (0, 300_000, 65_537), (300_001, 300_001, 300_001)]
    check_gather(MessageMesh, [[bytes([rank + 1]) * n for rank, n in enumerate(call)] for call in lengths])


def test_a_message_past_what_was_agreed_is_refused_by_its_own_rank_and_by_the_others() -> None:
    def refused(link: Any) -> str:
        with pytest.raises(ValueError) as caught:
            MessageMesh().allgather(np.zeros(15, np.uint8), [12], link, "bucket", lambda rank, data: None)
        return str(caught.value)

    def trusting(link: Any) -> str:
        message = np.zeros(15 if link.rank else 10, np.uint8)
        try:
            MessageMesh().allgather(message, [12, 15 if link.rank else 12], link, "bucket", lambda rank, data: None)
        except MessageError as error:
            return f"{error} {type(link.failure).__name__}"
        return ""

    assert run_links(1, refused)[0] == ["bucket: 15 bytes, but at most 12 were agreed."]
    text = "Message from rank 1: 15 bytes arrived, but the buffer holds 12 MessageError"
    assert run_links(2, trusting)[0] == [text, ""]


def test_an_error_of_the_receiver_waits_for_the_others() -> None:
    def call(link: Any) -> tuple[str, list[int]]:
        mesh, seen = MessageMesh(), []

        def arrived(rank: int, data: Any) -> None:
            seen.append(rank)
            if link.rank == 0 and rank == 2:
                raise RuntimeError(f"rank {rank} is damaged")

        try:
            mesh.allgather(np.full(100_000, link.rank, np.uint8), [100_000] * 3, link, "x", arrived)
        except RuntimeError as error:
            return str(error), seen
        return "", seen

    results, world = run_links(3, call)
    assert results == [("rank 2 is damaged", [0, 2]), ("", [1, 0, 2]), ("", [2, 1, 0])]
    assert world.unmatched() == 0


@pytest.mark.parametrize("size", [1, 2, 4])
def test_each_rank_gets_what_was_meant_for_it(size: int) -> None:
    def call(link: Any) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        messages = [np.full(100 * (rank + 1), 10 * link.rank + rank, np.uint8) for rank in range(size)]
        most = [100 * (link.rank + 1)] * size
        MessageMesh().alltoall(messages, most, link, "x", lambda rank, data: found.update({rank: data.tobytes()}))
        return found

    for own, found in enumerate(run_links(size, call)[0]):
        assert found == {rank: bytes([10 * rank + own]) * (100 * (own + 1)) for rank in range(size)}


@pytest.mark.parametrize("root", [0, 2])
def test_what_the_root_has_reaches_all(root: int) -> None:
    def call(link: Any) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        message = np.arange(200, dtype=np.uint8) if link.rank == root else None
        MessageMesh().broadcast(message, root, 300, link, "x", lambda rank, data: found.append((rank, data.tobytes())))
        return found

    assert run_links(3, call)[0] == [[(root, bytes(range(200)))]] * 3
