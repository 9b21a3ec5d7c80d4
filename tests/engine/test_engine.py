"""Engines of 1 to 4 ranks as threads: agreement, fusion, outcomes."""

from __future__ import annotations

import random
import threading
import weakref
from typing import Any

import numpy as np
import pytest

from sparse_ring.config import Config
from sparse_ring.engine.engine import Engine
from sparse_ring.engine.frames import ROOM_BYTES, pack_request
from sparse_ring.engine.link import Link
from sparse_ring.engine.mismatch import mismatch
from sparse_ring.engine.operation import Request
from sparse_ring.errors import MismatchError, NotInitializedError, SparseRingError
from sparse_ring.observe.metrics import Metrics
from sparse_ring.transport.threads import ThreadWorld
from tests.engine.ranks import Gather, Local, run_ranks

FRAME_HEADER_BYTES = 12
NEVER_MILLISECONDS = 1e9


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_shuffled_orders_give_every_rank_the_same(size: int) -> None:
    names = [f"layer.{number}" for number in range(60)]

    def program(engine: Engine) -> list[Any]:
        shuffle = random.Random(engine.rank)
        results = []
        for step in range(3):
            order = shuffle.sample(names, len(names))
            operations = {name: Gather(name, 10 * engine.rank + step, key=len(name)) for name in order}
            handles = {name: engine.submit(operation) for name, operation in operations.items()}
            results.append([handles[name].wait() for name in names])
        return results

    world = ThreadWorld(size)
    results = run_ranks(size, program, Config(cycle_time=0.0), world=world)
    assert results == [results[0]] * size
    for step, answers in enumerate(results[0]):
        for name, (values, batch, absent) in zip(names, answers, strict=True):
            assert values == [10 * rank + step for rank in range(size)]
            assert name in batch
            assert absent == [False] * size
    assert world.unmatched() == 0


def test_ranks_that_are_absent_give_nothing() -> None:
    def program(engine: Engine) -> Any:
        some = engine.submit(Gather("some", 7, absent=engine.rank != 1))
        every = engine.submit(Gather("every", 7, absent=True))
        again = [engine.submit(Gather(f"a{step}", 1, absent=engine.rank == step)) for step in range(3)]
        return some.wait(), every.wait(), [handle.wait()[0] for handle in again]

    expected = ([0, 7, 0], ["some"], [True, False, True]), None, [[0, 1, 1], [1, 0, 1], [1, 1, 0]]
    assert run_ranks(3, program) == [expected] * 3


def request(**changes: Any) -> Request:
    return Gather("w", **changes).request


def test_a_mismatch_fails_on_every_rank_and_the_job_goes_on() -> None:
    def program(engine: Engine) -> Any:
        texts = []
        for changes in (
            {"dtype": "float64" if engine.rank == 2 else "uint8"},
            {"shape": (2, 3) if engine.rank else (3, 2)},
            {"kind": "allreduce" if engine.rank == 1 else "allgather"},
            {"detail": f"root={engine.rank % 2}", "kind": "broadcast"},
        ):
            with pytest.raises(MismatchError) as info:
                engine.submit(Gather("w", **changes)).wait()
            assert info.value.tensor == "w"
            texts.append(str(info.value))
        return texts, engine.submit(Gather("w", 3)).wait()[0]

    texts = [
        f"Tensor 'w': {text}"
        for text in (
            mismatch([request(), request(), request(dtype="float64")]),
            mismatch([request(shape=(3, 2)), request(shape=(2, 3)), request(shape=(2, 3))]),
            mismatch([request(), request(kind="allreduce"), request()]),
            "Mismatched BROADCAST settings: ranks [0, 2] had root=0, but rank 1 had root=1. Give all ranks the same.",
        )
    ]
    assert run_ranks(3, program) == [(texts, [3, 3, 3])] * 3


def test_a_name_in_flight_is_refused_and_free_once_it_is_done() -> None:
    gate = threading.Event()

    def program(engine: Engine) -> list[int]:
        if engine.rank == 1:
            assert gate.wait(60)
        first = engine.submit(Gather("w", 1))
        if engine.rank == 0:
            with pytest.raises(ValueError, match=r"^Tensor 'w' is still in flight on rank 0"):
                engine.submit(Gather("w", 1))
            gate.set()
        first.wait()
        values: list[int] = engine.submit(Gather("w", 2)).wait()[0]
        return values

    assert run_ranks(2, program) == [[2, 2]] * 2


def test_a_remembered_step_costs_three_bytes_a_tensor() -> None:
    names = [f"transformer.block.{number}.weight" for number in range(100)]

    def program(engine: Engine) -> list[int]:
        spent = []
        for _ in range(3):
            before = engine.link.metrics.control_bytes
            for handle in engine.submit_all([Gather(name) for name in names]):
                handle.wait()
            spent.append(engine.link.metrics.control_bytes - before)
        return spent

    full = sum(len(pack_request(Gather(name).request)) for name in names)
    remembered = 2 * (FRAME_HEADER_BYTES + 3 * len(names))
    first = 2 * (FRAME_HEADER_BYTES + full)
    assert run_ranks(3, program) == [[first + 2 * 10 * (rank == 0), remembered, remembered] for rank in range(3)]


def test_the_cache_holds_what_rank_0_says() -> None:
    names = [f"t{number}" for number in range(5)]

    def program(engine: Engine) -> int:
        for _ in range(2):
            before = engine.link.metrics.control_bytes
            values = [handle.wait()[0] for handle in engine.submit_all([Gather(name, 4) for name in names])]
            assert values == [[4, 4]] * 5
        return engine.link.metrics.control_bytes - before

    full = len(pack_request(Gather("t0").request))
    configs = [Config(cache_capacity=3), Config(cache_capacity=0)]
    assert run_ranks(2, program, configs) == [FRAME_HEADER_BYTES + 3 * 3 + 2 * full] * 2


def test_requests_that_exceed_a_frame_take_several_rounds() -> None:
    names = [f"{number}.{'block.' * 20}weight" for number in range(2000)]
    shuffled = random.Random(5).sample(names, len(names))

    def program(engine: Engine) -> int:
        order = shuffled if engine.rank else names
        operations = [Gather(name, engine.rank + 1, key="k") for name in order]
        results = [handle.wait() for handle in engine.submit_all(operations)]
        assert [values for values, _, _ in results] == [[1, 2, 3]] * len(names)
        return engine.link.metrics.control_bytes

    config = Config(cycle_time=NEVER_MILLISECONDS)
    spent = run_ranks(3, program, config)
    assert min(spent) > 2 * 3 * ROOM_BYTES


def test_a_request_that_fits_no_frame_fails_alone() -> None:
    def program(engine: Engine) -> Any:
        long, short = engine.submit_all([Gather("n" * 65000, detail="d" * 65000), Gather("short", 1)])
        with pytest.raises(ValueError, match=r"^Tensor 'nnn.*give it a shorter name"):
            long.wait()
        return short.wait()[0]

    assert run_ranks(2, program) == [[1, 1]] * 2


def test_buckets_are_the_same_on_all_ranks_and_close_by_bytes() -> None:
    def program(engine: Engine) -> list[list[str]]:
        order = random.Random(engine.rank).sample("abcdef", 6)
        operations = {name: Gather(name, key=None if name == "f" else "k", nbytes=10) for name in order}
        handles = dict(zip(order, engine.submit_all(list(operations.values())), strict=True))
        return [handles[name].wait()[1] for name in "abcdef"]

    # Rank 0's threshold holds for all; the last rank's order is the agreed one, since it completes every name.
    configs = [Config(fusion_threshold=25), Config(fusion_threshold=0), Config(fusion_threshold=1 << 30)]
    results = run_ranks(3, program, configs)
    order = [name for name in random.Random(2).sample("abcdef", 6) if name != "f"]
    buckets = {name: bucket for bucket in (order[:3], order[3:]) for name in bucket} | {"f": ["f"]}
    assert results == [[buckets[name] for name in "abcdef"]] * 3


def test_a_waiting_caller_is_not_kept_for_the_cycle() -> None:
    def program(engine: Engine) -> list[int]:
        values: list[int] = engine.submit(Gather("w", 5, key="k")).wait()[0]
        return values

    assert run_ranks(2, program, Config(cycle_time=NEVER_MILLISECONDS)) == [[5, 5]] * 2


def test_several_threads_may_submit() -> None:
    def program(engine: Engine) -> list[list[int]]:
        results: dict[int, list[int]] = {}

        def caller(number: int) -> None:
            for step in range(20):
                results[number] = engine.submit(Gather(f"thread.{number}", step)).wait()[0]

        threads = [threading.Thread(target=caller, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [results[number] for number in range(4)]

    assert run_ranks(2, program) == [[[19, 19]] * 4] * 2


def test_an_error_of_run_reaches_the_caller_and_the_job_goes_on() -> None:
    def broken(link: Link) -> None:
        raise ZeroDivisionError(f"on rank {link.rank}")

    def program(engine: Engine) -> Any:
        handle = engine.submit(Local("w", broken))
        for _ in range(2):
            with pytest.raises(ZeroDivisionError, match=f"^on rank {engine.rank}$") as info:
                handle.wait()
            assert isinstance(info.value.__cause__, ZeroDivisionError)
        returned = engine.submit(Local("v", lambda link: KeyError("returned")))
        with pytest.raises(KeyError, match="returned") as info_returned:
            returned.wait()
        assert info_returned.value.__cause__ is None
        return engine.submit(Gather("w", 1)).wait()[0]

    assert run_ranks(2, program) == [[1, 1]] * 2


def test_an_error_does_not_keep_the_tensors_of_its_batch() -> None:
    arrays: list[weakref.ref[Any]] = []

    def broken(link: Link) -> None:
        held = np.zeros(1000)
        arrays.append(weakref.ref(held))
        raise ValueError(f"{held.shape}")

    def program(engine: Engine) -> bool:
        handle = engine.submit(Local("w", broken))
        with pytest.raises(ValueError, match="1000"):
            handle.wait()
        return arrays[0]() is None

    assert run_ranks(1, program) == [True]


def test_a_wrong_number_of_results_is_an_error() -> None:
    class Short(Gather):
        @classmethod
        def run(cls, batch: Any, link: Link) -> list[Any]:
            return []

    def program(engine: Engine) -> None:
        with pytest.raises(SparseRingError, match=r"^Short\.run gave 0 results for 1 operations"):
            engine.submit(Short("w")).wait()

    run_ranks(1, program)


def test_a_timeout_on_a_handle_leaves_the_operation_alone() -> None:
    gate = threading.Event()

    def program(engine: Engine) -> list[int]:
        if engine.rank == 1:
            assert gate.wait(60)
        handle = engine.submit(Gather("w", 2))
        if engine.rank == 0:
            with pytest.raises(TimeoutError, match=r"^Tensor 'w': no result within 0\.01 s"):
                handle.wait(0.01)
            gate.set()
        values: list[int] = handle.wait()[0]
        return values

    assert run_ranks(2, program) == [[2, 2]] * 2


def test_the_error_of_open_is_the_constructors() -> None:
    world = ThreadWorld(2)
    world.transport(1).abort(3)
    with pytest.raises(SparseRingError, match=r"Rank 1 aborted the job with code 3"):
        Engine(world.transport(0), Config(), Metrics())


def test_abort_fails_every_rank() -> None:
    world = ThreadWorld(2)
    engines = [Engine(world.transport(rank), Config(), Metrics()) for rank in range(2)]
    handles = [engine.submit(Gather(f"only.{engine.rank}")) for engine in engines]
    engines[0].abort(9)
    for handle in handles:
        with pytest.raises(
            SparseRingError, match=f"^Tensor '{handle.name}': the engine of rank . has stopped: .* code 9"
        ):
            handle.wait()
    for engine in engines:
        with pytest.raises(SparseRingError, match=r"^Tensor 'later': the engine of rank . has stopped"):
            engine.submit(Gather("later"))
        engine.close()


def test_nothing_is_accepted_after_close() -> None:
    def program(engine: Engine) -> None:
        engine.close()
        with pytest.raises(NotInitializedError):
            engine.submit(Gather("w"))

    run_ranks(2, program)
