from __future__ import annotations

import threading

import pytest

from sparse_ring.engine.queue import Queue, Turn
from sparse_ring.errors import MessageError, NotInitializedError, RankLostError, SparseRingError
from tests.engine.ranks import Gather

FOREVER_SECONDS = 1e6


def queue(cycle_seconds: float = FOREVER_SECONDS) -> Queue:
    return Queue(3, 100, cycle_seconds)


def taken(source: Queue) -> list[str]:
    names: list[str] = []
    source.take(lambda submitted: names.append(submitted.name) is None)
    return names


def fused(name: str, nbytes: int = 10) -> Gather:
    return Gather(name, key="k", nbytes=nbytes)


def test_a_full_bucket_goes_at_once() -> None:
    source = queue()
    source.put([fused("a", 60), fused("b", 40)])
    assert source.next_turn() is Turn.ROUND
    assert taken(source) == ["a", "b"]


def test_operations_that_cannot_fuse_go_at_once() -> None:
    source = queue()
    source.put([Gather("a"), Gather("b")])
    assert source.next_turn() is Turn.ROUND


def test_the_cycle_time_ends_the_wait() -> None:
    source = queue(cycle_seconds=0.0)
    source.put([fused("a")])
    assert source.next_turn() is Turn.ROUND


def test_what_is_not_worth_a_round_waits_for_more_and_listens() -> None:
    source = Queue(3, 100, 0.0, lambda nbytes: nbytes >= 30)
    source.put([fused("a")])
    assert source.next_turn() is Turn.LISTEN
    source.put([fused("b"), fused("c")])
    assert source.next_turn() is Turn.ROUND
    assert taken(source) == ["a", "b", "c"]


def test_what_is_not_worth_a_round_goes_in_the_end() -> None:
    source = Queue(3, 100, 0.0, lambda nbytes: False)
    source.put([fused("a")])
    turns = [source.next_turn()]
    while turns[-1] is Turn.LISTEN:
        turns.append(source.next_turn())
    assert turns[-1] is Turn.ROUND


def test_a_waiting_caller_ends_the_wait() -> None:
    source = queue()
    (handle,) = source.put([fused("a")])
    caller = threading.Thread(target=handle.wait)
    caller.start()
    assert source.next_turn() is Turn.ROUND
    source.finish(["a"], [1])
    caller.join()


def test_a_bucket_is_collected_until_it_is_full() -> None:
    source = queue()
    turns: list[object] = []

    def take_turn() -> None:
        # On a busy machine it may listen before all of them have come.
        turn = source.next_turn()
        while turn is Turn.LISTEN:
            turn = source.next_turn()
        turns.extend((turn, taken(source)))

    thread = threading.Thread(target=take_turn)
    source.put([fused("a")])
    thread.start()
    for name in "bc":
        source.put([fused(name)])
    source.put([fused("d", 70)])
    thread.join()
    assert turns == [Turn.ROUND, ["a", "b", "c", "d"]]


def test_what_a_frame_left_over_goes_at_once() -> None:
    source = queue()
    source.put([fused("a", 99), fused("b")])
    accepted = iter([True, False])
    source.take(lambda submitted: next(accepted))
    assert source.next_turn() is Turn.ROUND
    assert taken(source) == ["b"]
    assert source.next_turn() is Turn.LISTEN


def test_names_in_flight_are_refused_and_nothing_is_taken() -> None:
    source = queue()
    source.put([Gather("a")])
    with pytest.raises(ValueError, match=r"^Tensor 'a' is still in flight on rank 3"):
        source.put([Gather("b"), Gather("a")])
    with pytest.raises(ValueError, match=r"^Tensor 'c' is still in flight"):
        source.put([Gather("c"), Gather("c")])
    assert [entry.name for entry in source.open_operations()] == ["a"]
    source.finish(["a"], [None])
    source.put([Gather("a")])


def test_closing_comes_before_all_else() -> None:
    source = queue()
    source.put([Gather("a")])
    source.close()
    assert source.next_turn() is Turn.LAST
    with pytest.raises(NotInitializedError, match=r"The engine of rank 3 has not been initialized"):
        source.put([Gather("b")])


def test_a_lost_rank_fails_what_is_open_and_what_comes() -> None:
    source = queue()
    (before,) = source.put([Gather("a")])
    source.lose(1)
    (after,) = source.put([Gather("b")])
    for handle in (before, after):
        with pytest.raises(RankLostError, match=f"Tensor '{handle.name}': rank 1 has shut down") as info:
            handle.wait()
        assert (info.value.rank, info.value.tensor) == (1, handle.name)
    assert source.open_operations() == []


def test_the_first_failure_stays_and_names_its_cause() -> None:
    source = queue()
    (handle,) = source.put([Gather("a")])
    source.fail(OSError("cable cut"))
    source.fail(OSError("later"))
    text = r"^Tensor '{}': the engine of rank 3 has stopped: cable cut$"
    with pytest.raises(SparseRingError, match=text.format("a")):
        handle.wait()
    with pytest.raises(SparseRingError, match=text.format("b")):
        source.put([Gather("b")])
    with pytest.raises(OSError, match="cable cut"):
        source.next_turn()


def test_a_damaged_message_stays_a_message_error() -> None:
    source = queue()
    (handle,) = source.put([Gather("a")])
    source.fail(MessageError("wrong checksum", rank=2))
    with pytest.raises(MessageError, match=r"^Message from rank 2, parameter 'a': wrong checksum$"):
        handle.wait()


def test_submitting_nothing_is_nothing() -> None:
    source = queue()
    assert source.put([]) == []
    source.close()
    assert source.next_turn() is Turn.LAST


def test_a_lost_connection_is_told_by_the_tensor_that_waited() -> None:
    own = queue()
    (handle,) = own.put([Gather("w", 0)])
    own.fail(RankLostError(2, "", "is gone"))
    with pytest.raises(RankLostError, match="Tensor 'w': rank 2 is gone") as info:
        handle.wait()
    assert info.value.rank == 2
