"""Inputs for the kernel suites: sizes around every block, floats with special values, supports of many shapes."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sparse_ring import _native
from sparse_ring.kernels.base import (
    SPARE,
    Floats,
    Indices,
    bitmap_bound,
    bitpack_bound,
    block16_bound,
    elias_fano_bound,
    golomb_bound,
    interpolative_bound,
)

# Numba's CUDA simulator takes a tenth of a millisecond for each thread of each kernel: fewer and smaller cases there.
SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"
MOST_SIMULATED = 1024

EDGES = [
    0,
    1,
    2,
    7,
    8,
    9,
    15,
    16,
    17,
    31,
    32,
    33,
    127,
    128,
    129,
    1023,
    1024,
    1025,
    4095,
    4096,
    4097,
    8192,
    16384,
    20481,
]
if SIMULATED:
    EDGES = [size for size in EDGES if size <= MOST_SIMULATED]
SPECIAL = np.array([0.0, -0.0, 1e-45, -1e-45, 1.1754942e-38, -1e-40, 3e38, -3e38, 65504.0, 1.0, -1.0], dtype=np.float32)

BOUNDS: dict[str, Callable[[int, int], int]] = {
    "golomb": golomb_bound,
    "interpolative": interpolative_bound,
    "bitpack": lambda count, numel: bitpack_bound(count),
    "bitmap": bitmap_bound,
    "elias_fano": elias_fano_bound,
    "block16": block16_bound,
}
INDEX_CODES = list(BOUNDS)
MOST_BITMAP_NUMEL = 1 << 12 if SIMULATED else 1 << 24  # of test cases: a bitmap takes memory for every position

NATIVE = [
    pytest.param(
        name, marks=pytest.mark.skipif(name not in _native.supported(), reason=f"this processor has no {name}")
    )
    for name in ("scalar", "avx2", "avx512")
]
IMPLEMENTATIONS = ["cuda"] if SIMULATED else ["reference", *NATIVE]


def fewer(cases: list[int]) -> list[int]:
    """All cases; in the simulator, some from the first to the last."""
    return cases[:: len(cases) // 5] if SIMULATED else cases


sizes = st.one_of(st.sampled_from(EDGES), st.integers(0, 300))
seeds = st.integers(0, 2**32 - 1)
examples = settings(
    max_examples=5 if SIMULATED else 100,
    deadline=None,
    derandomize=SIMULATED,
    suppress_health_check=[HealthCheck.too_slow, *([HealthCheck.filter_too_much] if SIMULATED else [])],
)


def floats(size: int, seed: int, *, spread: bool = True) -> Floats:
    """Finite float32 values: normal, or (spread) of all magnitudes with special values strewn in."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(size).astype(np.float32)
    if spread and seed % 2:
        x = np.clip(x * 10.0 ** rng.uniform(-46, 38, size), -3e38, 3e38).astype(np.float32)
        at = rng.random(size) < 0.1
        x[at] = rng.choice(SPECIAL, int(at.sum()))
    return x


@st.composite
def supports(draw: st.DrawFn) -> tuple[Indices, int]:
    """Strictly increasing indices and numel: uniform at some density, dense, clustered at the ends, or huge gaps."""
    count = draw(sizes)
    rng = np.random.default_rng(draw(seeds))
    shape = draw(st.sampled_from(["uniform", "dense", "ends", "huge"]))
    if shape == "dense":
        return np.arange(count, dtype=np.uint32), count + draw(st.integers(0, 3))
    if shape == "ends":
        numel = 4 * count + draw(st.integers(1, 1 << 20))
        half = np.arange(count // 2)
        return np.concatenate([half, numel - 1 - half[::-1]]).astype(np.uint32), numel
    density = 2.0 ** draw(st.floats(-12, -0.5))
    numel = 2**32 - 1 if shape == "huge" else int(count / density) + draw(st.integers(0, 9))
    if not numel:
        return np.zeros(0, dtype=np.uint32), 0
    return np.unique(rng.integers(0, numel, count)).astype(np.uint32), numel


coded_supports = st.tuples(st.sampled_from(INDEX_CODES), supports()).filter(
    lambda case: case[0] != "bitmap" or case[1][1] <= MOST_BITMAP_NUMEL
)


def outputs(capacity: int) -> tuple[Indices, Floats]:
    """Outputs of a selecting kernel, spare elements included."""
    return np.zeros(capacity + SPARE, dtype=np.uint32), np.zeros(capacity + SPARE, dtype=np.float32)


def guarded(length: int, dtype: Any) -> tuple[NDArray[Any], Callable[[], None]]:
    """Return an output array inside a larger one, and a function that asserts that nothing around it was written."""
    size = np.dtype(dtype).itemsize
    around = np.full((length + 128) * size, 0xA5, dtype=np.uint8)
    inner = around[64 * size : (64 + length) * size].view(dtype)

    def check() -> None:
        assert bytes(around[: 64 * size]) == b"\xa5" * (64 * size)
        assert bytes(around[(64 + length) * size :]) == b"\xa5" * (64 * size)

    return inner, check


def assert_same_bits(actual: NDArray[Any], expected: NDArray[Any]) -> None:
    """Compare dtype, shape and every bit; any NaN equals any other, since IEEE leaves their payload open."""
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    if actual.dtype == np.float32:
        both_nan = np.isnan(actual) & np.isnan(expected)
        different = (actual.view(np.uint32) != expected.view(np.uint32)) & ~both_nan
    else:
        different = actual != expected
    assert not different.any(), f"element {different.argmax()}: {actual[different][0]!r} != {expected[different][0]!r}"
