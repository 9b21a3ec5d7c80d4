from __future__ import annotations

import logging

import numpy as np
import pytest

from sparse_ring.config import Config
from sparse_ring.engine.link import DATA_TAGS, Link
from sparse_ring.errors import MessageError, SparseRingError, StallError
from sparse_ring.observe.metrics import Metrics
from sparse_ring.transport.threads import ThreadWorld


def links(size: int = 2, **settings: float) -> list[Link]:
    world = ThreadWorld(size)
    return [Link(world.transport(rank), Config(**settings), Metrics()) for rank in range(size)]


def test_transfers_arrive_and_are_counted_once() -> None:
    first, second = links()
    assert (first.rank, first.size, second.rank) == (0, 2, 1)
    buffer = np.zeros(10, dtype=np.uint8)
    receive = second.recv(buffer, 0)
    assert not receive.test()
    first.wait([first.send(np.arange(7, dtype=np.uint8), 1)], "send")
    second.wait([receive], "receive")
    assert receive.test()
    second.wait([receive], "receive")
    assert receive.nbytes == 7
    assert buffer.tolist() == [0, 1, 2, 3, 4, 5, 6, 0, 0, 0]
    assert (first.metrics.sent_bytes, first.metrics.received_bytes) == (7, 0)
    assert (second.metrics.sent_bytes, second.metrics.received_bytes) == (0, 7)
    assert first.failure is None


def test_a_batch_does_not_receive_what_an_earlier_one_left() -> None:
    first, second = links()
    first.send(np.array([1], dtype=np.uint8), 1)
    for link in (first, second):
        link.next_batch()
    first.send(np.array([2], dtype=np.uint8), 1)
    buffer = np.zeros(1, dtype=np.uint8)
    second.wait([second.recv(buffer, 0)], "receive")
    assert buffer.tolist() == [2]
    for _ in range(DATA_TAGS - 1):
        second.next_batch()
    second.wait([second.recv(buffer, 0)], "receive")
    assert buffer.tolist() == [1]


def test_a_wait_past_its_deadline_names_work_and_ranks(caplog: pytest.LogCaptureFixture) -> None:
    link = links(3, stall_check_time_seconds=0.01, stall_shutdown_time_seconds=0.05)[0]
    receive = link.recv(np.zeros(1, dtype=np.uint8), 2)
    with caplog.at_level(logging.WARNING, "sparse_ring.engine"), pytest.raises(StallError) as info:
        link.wait([receive], "ring of 'w'", [2])
    assert (info.value.what, info.value.ranks) == ("ring of 'w'", (2,))
    assert info.value.seconds >= 0.05
    assert caplog.messages[0] == "Rank 0: ring of 'w' has waited 0 s for ranks [2]."
    assert isinstance(link.failure, StallError)


def test_all_others_are_named_where_the_caller_names_none(caplog: pytest.LogCaptureFixture) -> None:
    link = links(3, stall_check_disable=True, stall_check_time_seconds=0.01, stall_shutdown_time_seconds=0.03)[1]
    with caplog.at_level(logging.WARNING, "sparse_ring.engine"), pytest.raises(StallError, match=r"ranks \[0, 2\]"):
        link.wait([link.recv(np.zeros(1, dtype=np.uint8), 2)], "work")
    assert caplog.messages == []


def test_a_transport_error_is_kept() -> None:
    first, second = links()
    first.send(np.zeros(5, dtype=np.uint8), 1)
    with pytest.raises(MessageError, match=r"^Message from rank 0: 5 bytes arrived, but the buffer holds 4$"):
        second.wait([second.recv(np.zeros(4, dtype=np.uint8), 0)], "receive")
    assert isinstance(second.failure, MessageError)


def test_an_aborted_world_ends_a_wait() -> None:
    world = ThreadWorld(2)
    link = Link(world.transport(0), Config(), Metrics())
    world.transport(1).abort(5)
    with pytest.raises(SparseRingError, match=r"Rank 1 aborted the job with code 5"):
        link.wait([link.recv(np.zeros(1, dtype=np.uint8), 1)], "receive")


def test_nothing_to_wait_for_returns() -> None:
    links()[0].wait([], "nothing")
