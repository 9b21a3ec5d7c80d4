"""Sums and largest values over whole arrays, without atomics: each block gives one number, and these are combined in order."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from sparse_ring.kernels.cuda.memory import empty, launch, tiles
from sparse_ring.kernels.cuda.warp import (
    ITEMS,
    THREADS,
    TILE,
    WARPS,
    block_number,
    kernel,
    sum_before,
    thread_number,
)


@kernel("int64[::1], int64, int64[::1]")
def scan_in_one_block(counts: Any, length: Any, sums: Any) -> None:
    """Write the sum before each of ``length`` counts, and the sum of all behind them: ``sums`` is int64[length + 1]."""
    values = cuda.shared.array(THREADS, np.int64)
    of_warps = cuda.shared.array(WARPS, np.int64)
    thread, carried = thread_number(), np.int64(0)
    for first in range(0, length, THREADS):
        place = first + thread
        count = counts[place] if place < length else np.int64(0)
        before, total = sum_before(count, values, of_warps)
        if place < length:
            sums[place] = carried + before
        carried += total
    if thread == 0:
        sums[length] = carried


@kernel("int64[::1], int64, int64[::1]")
def sum_tiles(counts: Any, length: Any, sums: Any) -> None:
    """Write the sum of each tile."""
    values = cuda.shared.array(THREADS, np.int64)
    of_warps = cuda.shared.array(WARPS, np.int64)
    thread, block = thread_number(), block_number()
    mine, first = np.int64(0), block * TILE + thread * ITEMS
    for place in range(first, min(first + ITEMS, length)):
        mine += counts[place]
    total = sum_before(mine, values, of_warps)[1]
    if thread == 0:
        sums[block] = total


@kernel("int64[::1], int64, int64[::1], int64[::1]")
def scan_tiles(counts: Any, length: Any, bases: Any, sums: Any) -> None:
    """Write the sum before each count, from the sums before each tile; the last thread writes the sum of all."""
    values = cuda.shared.array(THREADS, np.int64)
    of_warps = cuda.shared.array(WARPS, np.int64)
    thread, block = thread_number(), block_number()
    mine, first = np.int64(0), block * TILE + thread * ITEMS
    for place in range(first, min(first + ITEMS, length)):
        mine += counts[place]
    before = bases[block] + sum_before(mine, values, of_warps)[0]
    for place in range(first, min(first + ITEMS, length)):
        sums[place] = before
        before += counts[place]
        if place == length - 1:
            sums[length] = before


def scan(counts: Any, length: int) -> Any:
    """Return int64[length + 1] on the device: the sum before each of ``length`` counts, and of all.

    ``counts`` is int64[>= length] on the device.
    """
    sums = empty(length + 1, np.int64)
    if length <= TILE:
        launch(scan_in_one_block, 1, counts, length, sums)
        return sums
    blocks = tiles(length)
    of_tiles = empty(blocks, np.int64)
    launch(sum_tiles, blocks, counts, length, of_tiles)
    launch(scan_tiles, blocks, counts, length, scan(of_tiles, blocks), sums)
    return sums


def last_of(array: Any, length: int) -> int:
    """Return element ``length - 1`` of a device array."""
    return int(array[length - 1 : length].copy_to_host()[0])


def worst_of(flags: Any) -> int:
    """Return the largest number that a block left in int64 ``flags``."""
    return int(flags.copy_to_host().max(initial=0))
