"""The transport's contract over threads, and what only a world of threads has."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from sparse_ring.errors import ConfigError, SparseRingError
from sparse_ring.transport.threads import EAGER_BYTES, ThreadWorld
from tests.contracts.transport import CASES, Case, pattern


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_contract(case: Case, size: int) -> None:
    if size == 1 and case.__name__ == "a_receive_without_a_message_is_not_done":
        size = 4
    world = ThreadWorld(size)
    errors: list[BaseException] = []

    def rank(number: int) -> None:
        try:
            transport = world.transport(number)
            transport.open()
            case(transport)
            transport.close()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert world.unmatched() == 0


def test_a_small_message_may_be_reused_at_once() -> None:
    world = ThreadWorld(2)
    sender, receiver = world.transport(0), world.transport(1)
    data, buffer = pattern(EAGER_BYTES, 1), np.zeros(EAGER_BYTES, dtype=np.uint8)
    send = sender.isend(data, 1, 2)
    assert send.test()
    data[:] = 0
    assert receiver.irecv(buffer, 0, 2).test()
    np.testing.assert_array_equal(buffer, pattern(EAGER_BYTES, 1))


def test_a_large_message_waits_for_its_receiver() -> None:
    world = ThreadWorld(2)
    sender, receiver = world.transport(0), world.transport(1)
    send = sender.isend(pattern(EAGER_BYTES + 1, 1), 1, 2)
    assert not send.test()
    assert world.unmatched() == 1
    assert receiver.irecv(np.zeros(EAGER_BYTES + 1, dtype=np.uint8), 0, 2).test()
    assert send.test()
    assert world.unmatched() == 0


def test_abort_breaks_every_rank() -> None:
    world = ThreadWorld(3)
    receives = [world.transport(rank).irecv(np.zeros(1, dtype=np.uint8), (rank + 1) % 3, 2) for rank in range(3)]
    world.transport(1).abort(9)
    world.transport(2).abort(4)
    for receive in receives:
        with pytest.raises(SparseRingError, match=r"Rank 1 aborted the job with code 9"):
            receive.test()
    with pytest.raises(SparseRingError, match=r"Rank 1 aborted"):
        world.transport(0).open()


def test_ranks_and_sizes_outside_the_world_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"size is 0"):
        ThreadWorld(0)
    with pytest.raises(ConfigError, match=r"rank is 2, but must be a whole number from 0 to 1"):
        ThreadWorld(2).transport(2)
