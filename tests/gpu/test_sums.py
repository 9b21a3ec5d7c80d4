"""Parallel sums of magnitudes and squares keep the bits of eight accumulators that add one element after the other."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sparse_ring.kernels.base import Floats
from sparse_ring.kernels.cuda.kernels import CudaKernels
from sparse_ring.kernels.cuda.memory import on_device
from sparse_ring.kernels.cuda.sum import sum_of_squares
from sparse_ring.kernels.cuda.warp import TILE
from sparse_ring.kernels.reference.values import sum_magnitudes

KERNELS = CudaKernels()
SIZE = 2 * 8 * TILE + 3  # three runs of each accumulator


def chain(*first_accumulator: float) -> Floats:
    """Values of which the first accumulator adds these, and the others zeros."""
    values = np.zeros(8 * len(first_accumulator), np.float32)
    values[::8] = first_accumulator
    return values


def values_of(kind: str) -> Floats:
    rng = np.random.default_rng(5)
    normal = rng.standard_normal(SIZE).astype(np.float32)
    if kind == "normal":
        return normal
    if kind == "wide":  # most are far below the accumulators' unit, and many are ties
        return (np.float32(2) ** rng.integers(-126, 127, SIZE)).astype(np.float32) * np.sign(normal)
    if kind == "subnormal":
        return rng.integers(1, 1 << 23, SIZE, dtype=np.uint32).view(np.float32)
    # A large one first, then halves of its unit and near misses of them: ties that go up or down by the accumulator's parity.
    steps = np.float32(2.0**-25) * rng.choice(np.float32([1, 1, 1, 3, 2, 1 + 2**-20]), SIZE).astype(np.float32)
    steps[:8] = np.float32(2.0**28) * (1 + np.arange(8) / 16)
    return steps


@pytest.mark.parametrize("kind", ["normal", "wide", "subnormal", "ties"])
def test_bits_are_those_of_the_order(kind: str) -> None:
    values = values_of(kind)
    assert KERNELS.sum_magnitudes(values).hex() == sum_magnitudes(values).hex()


def sum_in_order_of_squares(values: Floats) -> float:
    return sum_magnitudes(np.square(values.astype(np.float64)))


def square_ties() -> Floats:
    """As "ties" above, of squares: 2**29 and more have the unit 2**-23, of which 2**-12 squared is half."""
    steps = np.float32(2.0**-12) * np.random.default_rng(6).choice(np.float32([1, 1, 1, 3, 2, 1 + 2**-20]), SIZE)
    steps[:8] = np.float32(2.0**14) * (1.5 + np.arange(8) / 64)
    return steps.astype(np.float32)


@pytest.mark.parametrize("kind", ["normal", "wide", "subnormal", "ties"])
def test_squares_keep_the_order_too(kind: str) -> None:
    values = square_ties() if kind == "ties" else values_of(kind)
    assert sum_of_squares(on_device("values", values, np.float32)).hex() == sum_in_order_of_squares(values).hex()


def test_the_order_of_squares_matters_here() -> None:
    values = square_ties()
    assert math.fsum(np.square(values.astype(np.float64)).tolist()) != sum_in_order_of_squares(values)


def test_the_order_matters_here() -> None:
    """An exact sum, rounded once, is another number, so that the test above can fail."""
    values = values_of("ties")
    assert math.fsum(np.abs(values).tolist()) != sum_magnitudes(values)


def test_a_tie_goes_to_the_even_neighbour() -> None:
    unit = 2.0**-52  # of numbers from 1 to 2
    # The first run ends at 1. In the second, 1 + u is odd, so that a half goes up to 1 + 2u, where the next one stays.
    assert KERNELS.sum_magnitudes(chain(*[0.0] * (TILE - 1), 1.0, unit, unit / 2, unit / 2)) == 1 + 2 * unit


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_what_is_not_finite_stays_so(bad: float) -> None:
    values = values_of("normal")
    values[SIZE // 2] = bad
    assert np.array_equal(KERNELS.sum_magnitudes(values), abs(bad), equal_nan=True)
    values[:] = 3e38
    values[SIZE // 2] = bad
    assert np.array_equal(KERNELS.sum_magnitudes(values), abs(bad), equal_nan=True)
