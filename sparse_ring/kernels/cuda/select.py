"""Selection on the device: elements at or above a threshold in order, and the k-th largest magnitude.

Selection counts per tile, sums these counts before each tile, and writes each element to the place that follows. The
k-th magnitude is found four bits at a time from the top of the float's bits, whose order is that of the magnitudes: every
thread counts digits in a column of its own in shared memory, so nothing is counted atomically.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from sparse_ring.kernels.base import SPARE, Floats, Indices
from sparse_ring.kernels.cpu.indices import need_numel
from sparse_ring.kernels.cpu.values import need
from sparse_ring.kernels.cuda.arithmetic import CudaArithmetic, accumulated, float_bits, reaches
from sparse_ring.kernels.cuda.memory import bring_back, empty, launch, on_device, room_for, strides, tiles
from sparse_ring.kernels.cuda.scan import last_of, scan
from sparse_ring.kernels.cuda.warp import (
    ITEMS,
    MAGNITUDE,
    THREADS,
    TILE,
    WARPS,
    block_count,
    block_number,
    kernel,
    sum_before,
    sync,
    thread_number,
)

DIGIT_BITS = 4
DIGITS = 1 << DIGIT_BITS


@kernel("uint32[::1], int64, int64, int64[::1]")
def count_passing(x: Any, length: Any, threshold: Any, counts: Any) -> None:
    """Count the elements of each tile whose magnitude has at least the bits ``threshold``."""
    values = cuda.shared.array(THREADS, np.int64)
    of_warps = cuda.shared.array(WARPS, np.int64)
    thread, block = thread_number(), block_number()
    mine, first = np.int64(0), block * TILE + thread * ITEMS
    for place in range(first, min(first + ITEMS, length)):
        if reaches(x[place], threshold):
            mine += np.int64(1)
    total = sum_before(mine, values, of_warps)[1]
    if thread == 0:
        counts[block] = total


@kernel("uint32[::1], int64, int64, int64[::1], int64, uint32[::1], uint32[::1]")
def write_passing(
    x: Any, length: Any, threshold: Any, befores: Any, capacity: Any, indices: Any, selected: Any
) -> None:
    """Write position and bits of the elements that ``count_passing`` counted, below ``capacity``."""
    values = cuda.shared.array(THREADS, np.int64)
    of_warps = cuda.shared.array(WARPS, np.int64)
    thread, block = thread_number(), block_number()
    mine, first = np.int64(0), block * TILE + thread * ITEMS
    for place in range(first, min(first + ITEMS, length)):
        if reaches(x[place], threshold):
            mine += np.int64(1)
    to = befores[block] + sum_before(mine, values, of_warps)[0]
    for place in range(first, min(first + ITEMS, length)):
        if reaches(x[place], threshold):
            if to < capacity:
                indices[to] = place
                selected[to] = x[place]
            to += np.int64(1)


@kernel("uint32[::1], int64, int64, int64, int64[:, ::1]")
def count_digits(x: Any, length: Any, prefix: Any, shift: Any, counts: Any) -> None:
    """Count, block by block, the digits at ``shift`` of the magnitudes whose higher bits are ``prefix``."""
    columns = cuda.shared.array((DIGITS, THREADS), np.int32)
    thread, block = thread_number(), block_number()
    for digit in range(DIGITS):
        columns[digit, thread] = 0
    for place in range(block * THREADS + thread, length, block_count() * THREADS):
        magnitude = np.int64(x[place]) & MAGNITUDE
        if magnitude >> (shift + DIGIT_BITS) == prefix:
            columns[(magnitude >> shift) & (DIGITS - 1), thread] += 1
    sync()
    if thread < DIGITS:
        total = np.int64(0)
        for step in range(THREADS):
            # Each digit's thread begins at another column, so that they read different banks.
            total += np.int64(columns[thread, (step + thread) % THREADS])
        counts[block, thread] = total


class CudaSelection(CudaArithmetic):
    """Selecting kernels; see :class:`sparse_ring.kernels.base.Kernels`."""

    def accumulate_select(
        self,
        gradient: Floats,
        velocity: Floats | None,
        residual: Floats,
        momentum: float,
        nesterov: bool,
        threshold: float,
        indices: Indices,
        values: Floats,
    ) -> int:
        """Accumulate and count in one pass, then select from the residual, which stays on the device in between."""
        need_numel(len(gradient))
        room, least = room_for_selected(indices, values), float_bits(threshold)
        kept, counts = accumulated(gradient, velocity, residual, momentum, nesterov, least)
        return _write(kept, least, counts, *room, indices, values)

    def select(self, x: Floats, threshold: float, indices: Indices, values: Floats) -> int:
        """Write position and value of every element at or above the threshold."""
        need_numel(len(x))
        room, least = room_for_selected(indices, values), float_bits(threshold)
        on_x, counts = on_device("x", x, np.float32), empty(tiles(len(x)), np.int64)
        launch(count_passing, tiles(len(x)), on_x.view(np.uint32), len(x), least, counts)
        return _write(on_x, least, counts, *room, indices, values)

    def kth_magnitude(self, x: Floats, k: int, scratch: Floats) -> float:
        """Return the ``k``-th largest magnitude; ``scratch`` is not touched."""
        length = len(x)
        need("scratch", len(scratch), length)
        if not 1 <= k <= length:
            raise ValueError(f"k is {k}, but must be from 1 to {length}.")
        bits, blocks = on_device("x", x, np.float32).view(np.uint32), strides(length)
        counts = empty((blocks, DIGITS), np.int64)
        prefix = 0
        for shift in range(32 - DIGIT_BITS, -1, -DIGIT_BITS):
            launch(count_digits, blocks, bits, length, prefix, shift, counts)
            digit, k = _digit_of(counts.copy_to_host().sum(axis=0), k)
            prefix = prefix << DIGIT_BITS | digit
        return float(np.uint32(prefix).view(np.float32))


def _digit_of(counts: Any, k: int) -> tuple[int, int]:
    """The digit of the k-th largest, and which of those with this digit it is."""
    for digit in range(DIGITS - 1, 0, -1):
        if k <= counts[digit]:
            return digit, k
        k -= int(counts[digit])
    return 0, k


def room_for_selected(indices: Indices, values: Floats) -> tuple[Any, Any]:
    """Return where to write on the device; raises ValueError where the outputs do not fit each other or lack the spare."""
    length = len(indices)
    need("values", len(values), length)
    if length < SPARE:
        raise ValueError(f"indices has {length} elements, but must have at least {SPARE} spare ones.")
    return room_for("indices", indices, np.uint32), room_for("values", values, np.float32)


def _write(x: Any, least: int, counts: Any, on_indices: Any, on_values: Any, indices: Indices, values: Floats) -> int:
    """Write what was counted, tile by tile, and return how many there are."""
    length, blocks, capacity = len(x), tiles(len(x)), len(indices) - SPARE
    if length == 0:
        return 0
    bits, befores = x.view(np.uint32), scan(counts, blocks)
    launch(write_passing, blocks, bits, length, least, befores, capacity, on_indices, on_values.view(np.uint32))
    count = last_of(befores, blocks + 1)
    bring_back(on_indices, indices, min(count, capacity))
    bring_back(on_values, values, min(count, capacity))
    return count
