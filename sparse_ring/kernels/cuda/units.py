"""Scales of whole gradients' blocks on the device: the largest magnitude, the norm, the means of both sides of zero."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from sparse_ring.kernels.cuda.memory import empty, launch, on_device, tiles
from sparse_ring.kernels.cuda.scan import last_of, scan
from sparse_ring.kernels.cuda.select import count_passing
from sparse_ring.kernels.cuda.sum import ACCUMULATORS, combined, range_of, sum_of_magnitudes, sum_of_squares
from sparse_ring.kernels.cuda.warp import (
    MAGNITUDE,
    MOST_BLOCKS,
    THREADS,
    WARPS,
    add_doubles,
    bits_of,
    block_count,
    block_number,
    device,
    divide_doubles,
    float_of,
    kernel,
    largest_of,
    multiply_doubles,
    nearest_float,
    square_root_double,
    sync,
    thread_number,
)
from sparse_ring.kernels.quantize import BLOCK8, FOUR4, ONE1, TREE8, Scheme, four_unit

GROUPS = THREADS // ACCUMULATORS  # blocks of values that a block of threads sums at once
LARGEST_FLOAT = float(np.finfo(np.float32).max)


@device
def _mean_of(total: Any, count: Any) -> Any:
    """The float32 nearest to a mean; 0 of nothing."""
    if count == 0:
        return np.float32(0)
    return nearest_float(divide_doubles(total, np.float64(count)))


@kernel("uint32[::1], int64, uint32[::1]")
def find_peaks(values: Any, block: Any, units: Any) -> None:
    """The largest magnitude of each block of values, by a block of threads."""
    shared = cuda.shared.array(THREADS, np.int64)
    of_warps = cuda.shared.array(WARPS, np.int64)
    thread, unit = thread_number(), block_number()
    peak = np.int64(0)
    for i in range(unit * block + thread, min((unit + 1) * block, len(values)), THREADS):
        peak = max(peak, np.int64(values[i]) & MAGNITUDE)
    peak = largest_of(peak, shared, of_warps)
    if thread == 0:
        units[unit] = peak


@kernel("float32[::1], int64, float32[::1]")
def find_norms(values: Any, block: Any, units: Any) -> None:
    """The root of each block's sum of squares, by eight threads: an accumulator each."""
    sums = cuda.shared.array(THREADS, np.float64)
    thread = thread_number()
    lane = thread % ACCUMULATORS
    for first in range(block_number() * GROUPS, len(units), block_count() * GROUPS):
        unit, total = first + thread // ACCUMULATORS, np.float64(0)
        for i in range(unit * block + lane, min((unit + 1) * block, len(values)), ACCUMULATORS):
            value = np.float64(values[i])
            total = add_doubles(total, multiply_doubles(value, value))
        sums[thread] = total
        sync()
        if lane == 0 and unit < len(units):
            units[unit] = nearest_float(min(square_root_double(combined(sums, thread)), LARGEST_FLOAT))
        sync()


@kernel("float32[::1], int64, float32[::1]")
def find_sides(values: Any, block: Any, units: Any) -> None:
    """Each block's mean of what is not negative and mean magnitude of what is, by eight threads: two accumulators each."""
    above = cuda.shared.array(THREADS, np.float64)
    below = cuda.shared.array(THREADS, np.float64)
    negatives = cuda.shared.array(THREADS, np.int64)
    thread, blocks = thread_number(), len(units) >> 1
    lane = thread % ACCUMULATORS
    for first in range(block_number() * GROUPS, blocks, block_count() * GROUPS):
        unit = first + thread // ACCUMULATORS
        begin, end = unit * block, min((unit + 1) * block, len(values))
        not_negative, negative, count = np.float64(0), np.float64(0), np.int64(0)
        for i in range(begin + lane, end, ACCUMULATORS):
            size = np.float64(float_of(bits_of(values[i]) & MAGNITUDE))
            if values[i] < 0:
                negative = add_doubles(negative, size)
                count += np.int64(1)
            else:
                not_negative = add_doubles(not_negative, size)
        above[thread], below[thread], negatives[thread] = not_negative, negative, count
        sync()
        if lane == 0 and unit < blocks:
            for other in range(thread + 1, thread + ACCUMULATORS):
                count += negatives[other]
            units[2 * unit] = _mean_of(combined(above, thread), end - begin - count)
            units[2 * unit + 1] = _mean_of(combined(below, thread), count)
        sync()


def head_of(values: Any, scheme: Scheme) -> tuple[Any, int]:
    """Return on the device the words before the digits of at least one value there, ``uint32[...]``, and ``four4``'s table.

    The scales come first. Only for schemes that have scales of their own.
    """
    blocks = scheme.blocks(len(values))
    if scheme is FOUR4:
        squares, largest = sum_of_squares(values), range_of(values)[1]
        table, unit = four_unit(_count_not_zero(values), sum_of_magnitudes(values), squares, largest)
        return on_device("head", np.array([unit.view(np.uint32), table], np.uint32), np.uint32), table
    words = empty(scheme.scales * blocks, np.uint32)
    if scheme in (BLOCK8, TREE8):
        launch(find_peaks, blocks, values.view(np.uint32), scheme.block, words)
    else:
        sums = find_sides if scheme is ONE1 else find_norms
        launch(sums, min(MOST_BLOCKS, -(-blocks // GROUPS)), values, scheme.block, words.view(np.float32))
    return words, 0


def _count_not_zero(values: Any) -> int:
    blocks = tiles(len(values))
    counts = empty(blocks, np.int64)
    launch(count_passing, blocks, values.view(np.uint32), len(values), 1, counts)
    return last_of(scan(counts, blocks), blocks + 1)
