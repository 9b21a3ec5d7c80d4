"""Sums of magnitudes or of their squares in the fixed order, and the range of magnitudes.

The order is that of eight float64 accumulators, each adding every eighth element one after the other. Floating-point sums
depend on their order, so a tree would give other bits. What makes it parallel all the same: as long as an accumulator stays
between two powers of two, the distance between neighbouring float64 numbers, its unit, stays the same, and adding x moves
it by x / unit, rounded to a whole number. That number does not depend on the accumulator, except for ties, which go to the even
neighbour, so that it depends on one bit: whether the accumulator, counted in units, is odd. A run of elements is thus a map
from that bit to a whole number of units. Such maps compose, and composing is associative and exact. One block an
accumulator composes the maps of a run in a tree; where the accumulator would reach the next power of two (or is still 0, or
something is not finite), one thread adds the run element by element instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from sparse_ring.kernels.base import Floats
from sparse_ring.kernels.cuda.arithmetic import first_place, stride
from sparse_ring.kernels.cuda.memory import empty, launch, on_device, strides
from sparse_ring.kernels.cuda.warp import (
    INFINITE,
    ITEMS,
    MAGNITUDE,
    THREADS,
    TILE,
    WARPS,
    add_doubles,
    block_number,
    device,
    double_bits,
    double_of,
    float_of,
    kernel,
    largest_of,
    multiply_doubles,
    sync,
    thread_number,
)

ACCUMULATORS = 8
HALVINGS = THREADS.bit_length() - 1
FRACTION_BITS = 52  # of a float64
FLOAT_FRACTION_BITS = 23
DOUBLE_BIAS = 1075  # a float64 of biased exponent e is a whole number times 2**(e - 1075)
FLOAT_BIAS = 150  # a float32 of biased exponent e (at least 1) is a whole number times 2**(e - 150)
MANTISSA_BITS = FLOAT_FRACTION_BITS + 1
TOO_MANY = 1 << 53  # units that no accumulator has room for
LARGEST_EXPONENT = 0x7FF


@device
def combined(sums: Any, first: Any) -> Any:
    """Return the sum of the eight accumulators from ``first`` on, in their order."""
    even = add_doubles(add_doubles(sums[first], sums[first + 4]), add_doubles(sums[first + 2], sums[first + 6]))
    odd = add_doubles(add_doubles(sums[first + 1], sums[first + 5]), add_doubles(sums[first + 3], sums[first + 7]))
    return add_doubles(even, odd)


@device
def _units(magnitude: Any, power: Any, unit: Any, odd: Any) -> Any:
    """How many units adding a magnitude, or its square, moves an accumulator that is odd or not: nearest, ties to even.

    ``magnitude`` is the bits of a float32, ``power`` 1 or 2; the unit is 2**unit.
    """
    if magnitude >= INFINITE:
        return np.int64(TOO_MANY)
    exponent = max(magnitude >> FLOAT_FRACTION_BITS, np.int64(1)) - FLOAT_BIAS
    whole = magnitude & ((1 << FLOAT_FRACTION_BITS) - 1)
    if magnitude >> FLOAT_FRACTION_BITS > 0:
        whole |= 1 << FLOAT_FRACTION_BITS
    if power == 2:
        whole *= whole
    shift = unit - power * exponent
    if shift <= power * MANTISSA_BITS - (FRACTION_BITS + 1):
        return np.int64(TOO_MANY) if whole > 0 else np.int64(0)
    if shift <= 0:
        return whole << -shift
    if shift > power * MANTISSA_BITS + 1:
        return np.int64(0)
    units, rest, half = whole >> shift, whole & ((np.int64(1) << shift) - 1), np.int64(1) << (shift - 1)
    if rest > half or (rest == half and (odd + units) & 1 == 1):
        units += np.int64(1)
    return units


@device
def _run_units(run: Any, first: Any, power: Any, unit: Any, odd: Any) -> Any:
    """How many units a thread's part of a run moves an accumulator that is odd or not."""
    moved = np.int64(0)
    for i in range(first, first + ITEMS):
        moved = min(moved + _units(np.int64(run[i]), power, unit, (odd + moved) & 1), np.int64(TOO_MANY))
    return moved


@kernel("uint32[::1], int64, int64, float64[::1]")
def sum_in_order(values: Any, length: Any, power: Any, sums: Any) -> None:
    """Block j adds the magnitudes j, j + 8, j + 16, … one after the other, in effect, and leaves their sum in ``sums[j]``.

    Or their squares, where ``power`` is 2: a square of a float32 is exact in float64.
    """
    run = cuda.shared.array(TILE, np.uint32)
    moves = cuda.shared.array((2, THREADS), np.int64)
    state = cuda.shared.array(1, np.float64)
    thread, accumulator = thread_number(), block_number()
    if thread == 0:
        state[0] = 0.0
    sync()
    for begin in range(accumulator, length, ACCUMULATORS * TILE):
        for i in range(thread, TILE, THREADS):
            place = begin + ACCUMULATORS * i
            run[i] = np.uint32(np.int64(values[place]) & MAGNITUDE if place < length else 0)
        sync()
        bits = double_bits(state[0])
        exponent = bits >> FRACTION_BITS
        for odd in range(2):
            moves[odd, thread] = _run_units(run, thread * ITEMS, power, exponent - DOUBLE_BIAS, odd)
        sync()
        for level in range(HALVINGS):
            half = 1 << level
            if thread % (2 * half) == 0:
                for odd in range(2):
                    moved = moves[odd, thread]
                    moves[odd, thread] = min(moved + moves[(odd + moved) & 1, thread + half], np.int64(TOO_MANY))
            sync()
        if thread == 0:
            moved = moves[bits & 1, 0]
            inside = (bits & ((1 << FRACTION_BITS) - 1)) + moved < 1 << FRACTION_BITS
            if inside and exponent > 0 and exponent < LARGEST_EXPONENT:
                state[0] = double_of(bits + moved)
            else:
                total = state[0]
                for i in range(TILE):
                    added = np.float64(float_of(np.int64(run[i])))
                    total = add_doubles(total, multiply_doubles(added, added) if power == 2 else added)
                state[0] = total
        sync()
    if thread == 0:
        sums[accumulator] = state[0]


@kernel("uint32[::1], int64[:, ::1]")
def find_range(values: Any, ranges: Any) -> None:
    """Leave the bits of a block's largest magnitude, and of MAGNITUDE less its smallest."""
    shared = cuda.shared.array(THREADS, np.int64)
    of_warps = cuda.shared.array(WARPS, np.int64)
    high, below = np.int64(0), np.int64(0)
    for i in range(first_place(), len(values), stride()):
        magnitude = np.int64(values[i]) & MAGNITUDE
        high, below = max(high, magnitude), max(below, MAGNITUDE - magnitude)
    high = largest_of(high, shared, of_warps)
    below = largest_of(below, shared, of_warps)
    if thread_number() == 0:
        ranges[block_number(), 0] = high
        ranges[block_number(), 1] = below


def sum_of_magnitudes(values: Any) -> float:
    """Return the sum of magnitudes of a float32 device array, in the fixed order."""
    return _sum_of_powers(values, 1)


def sum_of_squares(values: Any) -> float:
    """Return the float64 sum of squares of a float32 device array, in the fixed order."""
    return _sum_of_powers(values, 2)


def _sum_of_powers(values: Any, power: int) -> float:
    sums = empty(ACCUMULATORS, np.float64)
    launch(sum_in_order, ACCUMULATORS, values.view(np.uint32), len(values), power, sums)
    a = sums.copy_to_host()
    return float(((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7])))


def range_of(values: Any) -> tuple[np.float32, np.float32]:
    """Return the smallest and the largest magnitude of a float32 device array with at least one element."""
    blocks = strides(len(values))
    ranges = empty((blocks, 2), np.int64)
    launch(find_range, blocks, values.view(np.uint32), ranges)
    high, below = ranges.copy_to_host().max(axis=0)
    low, largest = np.array([MAGNITUDE - below, high], np.uint32).view(np.float32)
    return low, largest


class CudaSums:
    """See :class:`sparse_ring.kernels.base.Kernels`."""

    def sum_magnitudes(self, values: Floats) -> float:
        """Return the float64 sum of magnitudes in the fixed order."""
        return sum_of_magnitudes(on_device("values", values, np.float32))
