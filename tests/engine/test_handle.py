from __future__ import annotations

import threading
import traceback

import pytest

from sparse_ring.engine.handle import Handle, renewed
from sparse_ring.errors import MessageError, MismatchError, RankLostError, StallError


def test_a_result_can_be_fetched_again() -> None:
    handle = Handle("w")
    assert handle.name == "w"
    assert not handle.done()
    handle.finish(42)
    assert handle.done()
    assert [handle.wait(), handle.wait(0.0)] == [42, 42]


def test_a_timeout_names_the_tensor_and_the_operation_goes_on() -> None:
    changes: list[int] = []
    handle = Handle("layer.weight", changes.append)
    with pytest.raises(TimeoutError, match=r"^Tensor 'layer\.weight': no result within 0\.001 s"):
        handle.wait(0.001)
    assert changes == [1, -1]
    handle.finish("late")
    assert handle.wait() == "late"
    assert changes == [1, -1]


def test_each_wait_raises_a_new_exception_with_the_same_facts() -> None:
    handle = Handle("w")
    handle.finish(error=StallError("Tensor 'w'", [2], 60.0))
    caught = []
    for _ in range(3):
        with pytest.raises(StallError) as info:
            handle.wait()
        caught.append(info.value)
        assert len(traceback.extract_tb(info.value.__traceback__)) == 2
        assert info.value.__cause__ is None
    assert len({id(error) for error in caught}) == 3
    assert [(str(error), error.what, error.ranks, error.seconds) for error in caught] == [
        (str(StallError("Tensor 'w'", [2], 60.0)), "Tensor 'w'", (2,), 60.0)
    ] * 3


def test_an_error_that_was_raised_elsewhere_is_the_cause() -> None:
    try:
        raise ValueError("in the engine")
    except ValueError as error:
        original = error
    handle = Handle("w")
    handle.finish(error=original)
    trace = original.__traceback__
    with pytest.raises(ValueError, match="in the engine") as info:
        handle.wait()
    assert info.value is not original
    assert info.value.__cause__ is original
    assert original.__traceback__ is trace


def test_callers_on_several_threads_are_released() -> None:
    handle = Handle("w")
    results: list[int] = []
    threads = [threading.Thread(target=lambda: results.append(handle.wait())) for _ in range(3)]
    for thread in threads:
        thread.start()
    handle.finish(7)
    for thread in threads:
        thread.join()
    assert results == [7, 7, 7]


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a", 1),
        OSError(2, "no such file"),
        KeyError("k"),
        MismatchError("w", "differs"),
        RankLostError(3, "w"),
        MessageError("bad", rank=1, parameter="w"),
    ],
)
def test_renewed_errors_equal_their_originals(error: BaseException) -> None:
    copy = renewed(error)
    assert copy is not error
    assert (type(copy), str(copy), copy.args, vars(copy)) == (type(error), str(error), error.args, vars(error))


def test_who_expects_it_counts_as_waiting_until_it_is_done() -> None:
    changes: list[int] = []
    handle = Handle("w", changes.append)
    handle.expect()
    assert changes == [1]
    handle.finish(5)
    assert changes == [1, -1]
    handle.expect()
    assert changes == [1, -1, 1, -1]


def test_callbacks_come_once_before_or_after_the_outcome() -> None:
    handle, calls = Handle("w"), []
    handle.call_when_done(lambda: calls.append("before"))
    assert calls == []
    handle.finish(None)
    handle.call_when_done(lambda: calls.append("after"))
    assert calls == ["before", "after"]


def test_waits_that_gave_up_leave_nothing_behind() -> None:
    handle = Handle("w")
    for _ in range(100):
        with pytest.raises(TimeoutError):
            handle.wait(0)
    assert not handle._gates
    handle.finish(3)
    assert handle.wait(0) == 3
