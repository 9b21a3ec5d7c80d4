"""The largest magnitudes of each chunk on the device: a block of threads a chunk finds its border, then its elements are written.

The border is found as in ``cuda_select.py``, four bits at a time, each thread counting in a column of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from sparse_ring.kernels.base import CHUNK, SPARE, Floats, Indices, chunks_keep
from sparse_ring.kernels.cpu.indices import need_numel
from sparse_ring.kernels.cuda.memory import bring_back, empty, launch, on_device
from sparse_ring.kernels.cuda.scan import last_of, scan
from sparse_ring.kernels.cuda.select import DIGIT_BITS, DIGITS, room_for_selected
from sparse_ring.kernels.cuda.warp import (
    INFINITE,
    MAGNITUDE,
    THREADS,
    WARPS,
    block_number,
    device,
    kernel,
    sum_before,
    sync,
    thread_number,
)

SMALLEST = 0x00800000  # the bits of the smallest normal float32
EACH = CHUNK // THREADS


@device
def _worth(bits: Any) -> Any:
    """The bits of a magnitude that may be kept; 0 for what never is: NaN, and below the smallest normal number."""
    magnitude = np.int64(bits) & MAGNITUDE
    if magnitude < SMALLEST or magnitude > INFINITE:
        return np.int64(0)
    return magnitude


@kernel("uint32[::1], int64, int64, int64[::1], int64[::1], int64[::1]")
def find_borders(x: Any, length: Any, keep: Any, borders: Any, ties: Any, counts: Any) -> None:
    """Find each chunk's border: kept is what is above it, and of what is equal the first ``ties``; ``counts`` in all."""
    columns = cuda.shared.array((DIGITS, THREADS), np.int32)
    totals = cuda.shared.array(DIGITS, np.int64)
    values = cuda.shared.array(THREADS, np.int64)
    of_warps = cuda.shared.array(WARPS, np.int64)
    thread, chunk = thread_number(), block_number()
    first, end = chunk * CHUNK, min((chunk + 1) * CHUNK, length)
    wanted = max(np.int64(1), (keep * (end - first) + CHUNK // 2) // CHUNK)
    mine = np.int64(0)
    for place in range(first + thread, end, THREADS):
        if _worth(x[place]) > 0:
            mine += np.int64(1)
    count = sum_before(mine, values, of_warps)[1]
    border, rest = np.int64(SMALLEST - 1), np.int64(0)
    if count > wanted:
        border, rest, count = np.int64(0), wanted, wanted
        for digit_number in range(32 // DIGIT_BITS):
            shift = 32 - DIGIT_BITS * (digit_number + 1)
            for digit in range(DIGITS):
                columns[digit, thread] = 0
            for place in range(first + thread, end, THREADS):
                worth = _worth(x[place])
                if worth > 0 and worth >> (shift + DIGIT_BITS) == border:
                    columns[(worth >> shift) & (DIGITS - 1), thread] += 1
            sync()
            if thread < DIGITS:
                total = np.int64(0)
                for step in range(THREADS):
                    # Each digit's thread begins at another column, so that they read different banks.
                    total += np.int64(columns[thread, (step + thread) % THREADS])
                totals[thread] = total
            sync()
            digit = np.int64(DIGITS - 1)
            while rest > totals[digit]:
                rest -= totals[digit]
                digit -= np.int64(1)
            border = border << DIGIT_BITS | digit
    if thread == 0:
        borders[chunk] = border
        ties[chunk] = rest
        counts[chunk] = count


@kernel("uint32[::1], int64, int64[::1], int64[::1], int64[::1], uint32[::1], uint32[::1]")
def write_chunks(x: Any, length: Any, borders: Any, ties: Any, befores: Any, indices: Any, selected: Any) -> None:
    """Write position and bits of what each chunk keeps, a thread's elements being neighbours."""
    values = cuda.shared.array(THREADS, np.int64)
    of_warps = cuda.shared.array(WARPS, np.int64)
    thread, chunk = thread_number(), block_number()
    border, most = borders[chunk], ties[chunk]
    first = chunk * CHUNK + thread * EACH
    above, equal = np.int64(0), np.int64(0)
    for place in range(first, min(first + EACH, length)):
        worth = _worth(x[place])
        if worth > border:
            above += np.int64(1)
        if worth == border:
            equal += np.int64(1)
    tie = sum_before(equal, values, of_warps)[0]
    kept = above + max(np.int64(0), min(equal, most - tie))
    to = befores[chunk] + sum_before(kept, values, of_warps)[0]
    for place in range(first, min(first + EACH, length)):
        worth = _worth(x[place])
        if worth > border or (worth == border and tie < most):
            indices[to] = place
            selected[to] = x[place]
            to += np.int64(1)
        if worth == border:
            tie += np.int64(1)


class CudaChunks:
    """See :class:`sparse_ring.kernels.base.Kernels`."""

    def select_chunks(self, x: Floats, keep: int, indices: Indices, values: Floats) -> int:
        """Write position and value of the largest magnitudes of each chunk."""
        length, chunks = len(x), -(-len(x) // CHUNK)
        need_numel(length)
        if not 1 <= keep <= CHUNK:
            raise ValueError(f"keep is {keep}, but must be from 1 to {CHUNK}.")
        on_indices, on_values = room_for_selected(indices, values)
        room, most = len(indices) - SPARE, chunks_keep(length, keep)
        if room < most:
            raise ValueError(f"indices has room for {room} elements, but must have it for {most}.")
        bits = on_device("x", x, np.float32).view(np.uint32)
        if length == 0:
            return 0
        borders, ties, counts = (empty(chunks, np.int64) for _ in range(3))
        launch(find_borders, chunks, bits, length, keep, borders, ties, counts)
        befores = scan(counts, chunks)
        launch(write_chunks, chunks, bits, length, borders, ties, befores, on_indices, on_values.view(np.uint32))
        count = last_of(befores, chunks + 1)
        bring_back(on_indices, indices, count)
        bring_back(on_values, values, count)
        return count
