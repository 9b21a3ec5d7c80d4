"""What every kernel of the CUDA twin is written with: sizes, threads, votes, rounded arithmetic, sums over a block.

No kernel knows whether it runs on a device or in numba-cuda's simulator (NUMBA_ENABLE_CUDASIM=1, which numba reads when it is first
imported): the names come from ``cuda_hardware.py`` or from its twin, ``cuda_simulated.py``. What is left open there is
fixed here, and runs as it is on both.

Whole numbers in kernels are int64: what is loaded from an array passes through ``np.int64`` first, because NumPy and Numba
promote 32-bit unsigned numbers in different ways.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.cuda.core import config

SIMULATED = bool(config.ENABLE_CUDASIM)

if SIMULATED:
    from sparse_ring.kernels.cuda import simulated as _names
else:
    from sparse_ring.kernels.cuda import hardware as _names  # type: ignore[no-redef]

add, add_doubles, divide, multiply = _names.add, _names.add_doubles, _names.divide, _names.multiply
square_root, subtract = _names.square_root, _names.subtract
divide_doubles, multiply_doubles, square_root_double = (
    _names.divide_doubles,
    _names.multiply_doubles,
    _names.square_root_double,
)
nearest_float, nearest_whole = _names.nearest_float, _names.nearest_whole
ballot, bit_length, count_bits, trailing_zeros = (
    _names.ballot,
    _names.bit_length,
    _names.count_bits,
    _names.trailing_zeros,
)
bits_of, double_bits, double_of, float_of = _names.bits_of, _names.double_bits, _names.double_of, _names.float_of
float_of_half, half_of = _names.float_of_half, _names.half_of
block_count, block_number, sync, thread_number = (
    _names.block_count,
    _names.block_number,
    _names.sync,
    _names.thread_number,
)
configured, device = _names.configured, _names.device

WARP = 32
THREADS = 64 if SIMULATED else 256  # of a block; the simulator pays for each, and two warps show what several do
WARPS = THREADS // WARP
ITEMS = 4  # consecutive elements of a thread, where a block has a tile of its own
TILE = THREADS * ITEMS
MOST_BLOCKS = 4 if SIMULATED else 1024  # of kernels that stride over all elements

MAGNITUDE = 0x7FFFFFFF
SIGN = 0x80000000
INFINITE = 0x7F800000  # the bits of a float32; also the mask of its exponent

# Each kernel's name, its function and the types of its arguments: what there is to compile without a device.
SIGNATURES: dict[str, tuple[Callable[..., None], str]] = {}


def kernel(types: str) -> Callable[[Callable[..., None]], Any]:
    """Make a kernel of arguments of these types, such as ``"float32[::1], int64"``, known by its name in ``SIGNATURES``."""

    def make(function: Callable[..., None]) -> Any:
        SIGNATURES[function.__name__] = function, f"void({types})"
        return _names.jit(function)

    return make


@device
def sum_before(value: Any, values: Any, totals: Any) -> Any:
    """Return the sum of ``value`` over the threads before this one, and over all of the block.

    ``values`` (int64[THREADS]) and ``totals`` (int64[WARPS]) are shared; all threads of the block call it together. Another call
    may follow at once: it writes ``values`` when all have read them, and ``totals`` behind its own first barrier.
    """
    thread = thread_number()
    values[thread] = value
    sync()
    before = np.int64(0)
    for other in range(thread // WARP * WARP, thread):
        before += values[other]
    if thread % WARP == WARP - 1:
        totals[thread // WARP] = before + value
    sync()
    total = np.int64(0)
    for warp in range(WARPS):
        if warp < thread // WARP:
            before += totals[warp]
        total += totals[warp]
    return before, total


@device
def largest_of(value: Any, values: Any, totals: Any) -> Any:
    """Return the largest ``value`` of all threads of the block; shared arrays as in ``sum_before``."""
    thread = thread_number()
    values[thread] = value
    sync()
    if thread % WARP == 0:
        largest = value
        for other in range(thread + 1, thread + WARP):
            largest = max(largest, values[other])
        totals[thread // WARP] = largest
    sync()
    largest = totals[0]
    for warp in range(1, WARPS):
        largest = max(largest, totals[warp])
    return largest


@device
def first_above(sorted_numbers: Any, count: Any, bound: Any) -> Any:
    """Return how many of ``count`` increasing numbers are at most ``bound``: where the first above it is."""
    low, high = np.int64(0), np.int64(count)
    while low < high:
        middle = (low + high) // np.int64(2)
        if np.int64(sorted_numbers[middle]) <= bound:
            low = middle + np.int64(1)
        else:
            high = middle
    return low


@device
def read_bits(payload: Any, position: Any, width: Any) -> Any:
    """Return ``width`` <= 32 bits at a bit position, lowest first; they must lie in the payload."""
    value, filled = np.int64(0), -(position & np.int64(7))
    byte = position >> np.int64(3)
    while filled < width:
        piece = np.int64(payload[byte])
        if filled < 0:
            value |= piece >> -filled
        else:
            value |= piece << filled
        filled += np.int64(8)
        byte += np.int64(1)
    return value & ((np.int64(1) << width) - np.int64(1))
