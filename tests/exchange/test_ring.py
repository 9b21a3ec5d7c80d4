from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparse_ring.exchange.ring import DenseRing
from sparse_ring.exchange.wire import BFloat16Wire, Float16Wire
from sparse_ring.kernels.table import kernels_for
from tests.contracts.exchange import check_reduce, ring_twin, run_links, to_bfloat16
from tests.helpers import same_bits

KERNELS = kernels_for("auto")
DTYPES = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8"]
quick = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def numbers(rng: np.random.Generator, numel: int, dtype: str) -> np.ndarray[Any, Any]:
    if np.dtype(dtype).kind == "f":
        return (rng.standard_normal(numel) * 10.0 ** rng.integers(-3, 4, numel)).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, numel, dtype=dtype, endpoint=True)


@given(
    size=st.integers(1, 4),
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=5),
    dtype=st.sampled_from(DTYPES),
    op=st.sampled_from(["Sum", "Min", "Max"]),
    seed=st.integers(0, 2**32 - 1),
    segment=st.sampled_from([1, 16, 1 << 20]),
    window=st.sampled_from([8, 64, 1 << 20]),
)
@quick
def test_ring_is_its_twin(
    size: int, lengths: list[int], dtype: str, op: str, seed: int, segment: int, window: int
) -> None:
    rng = np.random.default_rng(seed)
    inputs = [[numbers(rng, length, dtype) for length in lengths] for _ in range(size)]
    check_reduce(lambda: DenseRing(segment_bytes=segment, window_bytes=window), inputs, op)


@given(
    size=st.integers(1, 4),
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=4),
    op=st.sampled_from(["Sum", "Min", "Max"]),
    seed=st.integers(0, 2**32 - 1),
)
@quick
def test_bfloat16_wire_rounds_at_each_hop(size: int, lengths: list[int], op: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    inputs = [[numbers(rng, length, "float32") for length in lengths] for _ in range(size)]
    check_reduce(lambda: DenseRing(BFloat16Wire(KERNELS), segment_bytes=16, window_bytes=64), inputs, op, to_bfloat16)


@given(
    size=st.integers(1, 4), lengths=st.lists(st.integers(0, 40), min_size=1, max_size=4), seed=st.integers(0, 2**32 - 1)
)
@quick
def test_float16_wire_rounds_at_each_hop(size: int, lengths: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    inputs = [[numbers(rng, length, "float32") for length in lengths] for _ in range(size)]

    def to_float16(values: Any) -> Any:
        with np.errstate(over="ignore"):
            return values.astype(np.float16).astype(np.float32)

    check_reduce(lambda: DenseRing(Float16Wire(KERNELS), segment_bytes=16, window_bytes=64), inputs, "Sum", to_float16)


@pytest.mark.parametrize("size", [2, 3])
def test_bfloat16_bits_sum_as_their_floats(size: int) -> None:
    rng = np.random.default_rng(7)
    floats = [to_bfloat16(numbers(rng, 37, "float32")) for _ in range(size)]
    bits = [(values.view(np.uint32) >> 16).astype(np.uint16) for values in floats]

    def reduced(link: Any) -> Any:
        own = bits[link.rank].copy()
        DenseRing(BFloat16Wire(KERNELS)).allreduce([own], "Sum", link, "bits")
        return own

    expected = (ring_twin(floats, "Sum", to_bfloat16).view(np.uint32) >> 16).astype(np.uint16)
    results, _ = run_links(size, reduced)
    assert all(same_bits(result, expected) for result in results)


def test_large_chunks_travel_in_segments_and_windows_of_the_default_size() -> None:
    numel = 3 * (2 << 20) + 1
    inputs = [[np.arange(numel, dtype=np.float32) * (rank + 1)] for rank in range(2)]
    check_reduce(lambda: DenseRing(window_bytes=4 << 20), inputs, "Sum")


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_each_rank_sends_two_parts_less_than_twice(size: int) -> None:
    numel = 12 * 5

    def sent(link: Any) -> int:
        DenseRing().allreduce([np.zeros(numel, np.float32)], "Sum", link, "bytes")
        return int(link.metrics.sent_bytes)

    results, _ = run_links(size, sent)
    assert results == [4 * numel * 2 * (size - 1) // size] * size


def test_scratch_is_used_again() -> None:
    def buffers(link: Any) -> bool:
        ring = DenseRing()
        ring.allreduce([np.zeros(1000, np.float32)], "Sum", link, "first")
        first = ring._scratch.take(1).ctypes.data
        ring.allreduce([np.zeros(999, np.float64)[:400]], "Sum", link, "second")
        return first == ring._scratch.take(1).ctypes.data

    assert run_links(2, buffers)[0] == [True, True]


def test_overflow_and_nan_are_results() -> None:
    inputs = [[np.array([6e4, np.nan, 1, -np.inf], np.float16)], [np.array([6e4, 1, np.nan, np.inf], np.float16)]]

    def reduced(link: Any) -> Any:
        own = inputs[link.rank][0].copy()
        DenseRing().allreduce([own], "Sum", link, "overflow")
        return own.tolist()

    for result in run_links(2, reduced)[0]:
        assert result[0] == np.inf
        assert np.isnan(result[1:]).all()


def test_bool_has_minimum_and_maximum() -> None:
    inputs = [[np.array([False, False, True, True])], [np.array([False, True, False, True])]]
    check_reduce(DenseRing, inputs, "Min")
    check_reduce(DenseRing, inputs, "Max")


def test_wrong_calls_say_so_before_anything_moves() -> None:
    def call(link: Any) -> list[str]:
        texts = []
        for ring, arrays, op in [
            (DenseRing(), [np.zeros(1, np.float32)], "Average"),
            (DenseRing(), [np.zeros(1, np.float32), np.zeros(1, np.float64)], "Sum"),
            (DenseRing(BFloat16Wire(KERNELS)), [np.zeros(1, np.float64)], "Sum"),
        ]:
            with pytest.raises(ValueError) as caught:
                ring.allreduce(arrays, op, link, "x")
            texts.append(str(caught.value))
        assert link.metrics.sent_bytes == 0
        return texts

    texts = run_links(2, call)[0][1]
    assert texts[0] == "x: op is 'Average', but a ring knows Sum, Min, Max."
    assert texts[1] == "x: arrays of one call must share a dtype, not ['float32', 'float64']."
    assert texts[2] == "a bfloat16 wire carries float32 or bfloat16 (as uint16), not float64; use the native wire."
