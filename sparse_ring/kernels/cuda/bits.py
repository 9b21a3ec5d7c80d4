"""Positions of set bits on the device: what bitmap and Elias-Fano code read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from sparse_ring.kernels.cuda.memory import empty, launch, tiles
from sparse_ring.kernels.cuda.scan import last_of, scan
from sparse_ring.kernels.cuda.warp import (
    ITEMS,
    THREADS,
    TILE,
    WARPS,
    block_number,
    count_bits,
    kernel,
    sum_before,
    thread_number,
    trailing_zeros,
)


@kernel("uint8[::1], int64, int64, int64[::1]")
def count_set_bits(payload: Any, begin: Any, size: Any, counts: Any) -> None:
    """Count the set bits of each tile of bytes, from byte ``begin``."""
    values = cuda.shared.array(THREADS, np.int64)
    of_warps = cuda.shared.array(WARPS, np.int64)
    thread, block = thread_number(), block_number()
    mine, first = np.int64(0), block * TILE + thread * ITEMS
    for place in range(first, min(first + ITEMS, size)):
        mine += count_bits(np.int64(payload[begin + place]))
    total = sum_before(mine, values, of_warps)[1]
    if thread == 0:
        counts[block] = total


@kernel("uint8[::1], int64, int64, int64[::1], int64, int64[::1]")
def write_set_bits(payload: Any, begin: Any, size: Any, befores: Any, capacity: Any, positions: Any) -> None:
    """Write the positions, counted from byte ``begin``, of the first ``capacity`` set bits."""
    values = cuda.shared.array(THREADS, np.int64)
    of_warps = cuda.shared.array(WARPS, np.int64)
    thread, block = thread_number(), block_number()
    mine, first = np.int64(0), block * TILE + thread * ITEMS
    for place in range(first, min(first + ITEMS, size)):
        mine += count_bits(np.int64(payload[begin + place]))
    to = befores[block] + sum_before(mine, values, of_warps)[0]
    for place in range(first, min(first + ITEMS, size)):
        byte = np.int64(payload[begin + place])
        while byte != 0 and to < capacity:
            positions[to] = 8 * place + trailing_zeros(byte)
            byte &= byte - 1
            to += np.int64(1)


def set_bits(payload: Any, begin: int, size: int, most: int) -> tuple[int, Any]:
    """Return how many bits are set in ``size`` bytes from ``begin`` on, and the positions of the first ``most`` of them.

    ``payload`` lies on the device, and so do the positions, ``int64[most]``, counted from byte ``begin``.
    """
    blocks, positions = tiles(size), empty(most, np.int64)
    if size == 0:
        return 0, positions
    counts = empty(blocks, np.int64)
    launch(count_set_bits, blocks, payload, begin, size, counts)
    befores = scan(counts, blocks)
    launch(write_set_bits, blocks, payload, begin, size, befores, most, positions)
    return last_of(befores, blocks + 1), positions
