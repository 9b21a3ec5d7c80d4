"""Bit-packed gaps on the device: a block of 128 gaps is packed and unpacked by a block of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from sparse_ring.kernels import reasons
from sparse_ring.kernels.base import Bytes, Indices, bitpack_bound
from sparse_ring.kernels.cpu.indices import need_numel
from sparse_ring.kernels.cuda.arithmetic import first_place, stride
from sparse_ring.kernels.cuda.indices import gap_before, need_room, ordered, refuse
from sparse_ring.kernels.cuda.memory import bring_back, empty, give, launch, on_device, room_for, strides
from sparse_ring.kernels.cuda.scan import last_of, scan, worst_of
from sparse_ring.kernels.cuda.warp import (
    THREADS,
    WARPS,
    bit_length,
    block_number,
    kernel,
    largest_of,
    read_bits,
    thread_number,
)

CODE = "bit-packed indices"
BITPACK_BLOCK = 128
MOST_WIDTH = 32
EVERY_NUMEL = 2**32 - 1
TRUNCATED, WIDTH, TRAILING = range(1, 4)
BY_STATUS = (None, reasons.TRUNCATED, reasons.WIDTH, reasons.TRAILING)


@kernel("uint32[::1], int64, int64[::1], int64[::1]")
def measure_widths(indices: Any, length: Any, widths: Any, sizes: Any) -> None:
    """Write a block's width and its bytes, its width's own included."""
    values = cuda.shared.array(THREADS, np.int64)
    of_warps = cuda.shared.array(WARPS, np.int64)
    thread, block = thread_number(), block_number()
    first, end = block * BITPACK_BLOCK, min((block + 1) * BITPACK_BLOCK, length)
    largest = np.int64(0)
    for i in range(first + thread, end, THREADS):
        largest = max(largest, gap_before(indices, i))
    width = bit_length(largest_of(largest, values, of_warps))
    if thread == 0:
        widths[block] = width
        sizes[block] = 1 + (((end - first) * width + 7) >> 3)


@kernel("uint32[::1], int64, int64[::1], int64[::1], uint8[::1]")
def write_bitpack(indices: Any, length: Any, widths: Any, starts: Any, out: Any) -> None:
    """Write a block, a byte a thread: its width, then its gaps."""
    block = block_number()
    first, end = block * BITPACK_BLOCK, min((block + 1) * BITPACK_BLOCK, length)
    width, start = widths[block], starts[block]
    for byte in range(thread_number(), starts[block + 1] - start, THREADS):
        value = width
        if byte > 0:
            value = np.int64(0)
            bit = 8 * (byte - 1)
            i = bit // width
            while first + i < end and i * width < bit + 8:
                gap, shift = gap_before(indices, first + i), i * width - bit
                value |= gap << shift if shift >= 0 else gap >> -shift
                i += np.int64(1)
        out[start + byte] = value & 0xFF


@kernel("uint8[::1], int64, int64, int64[:, ::1], int64[::1]")
def find_blocks(payload: Any, size: Any, length: Any, blocks: Any, flags: Any) -> None:
    """Walk from width to width, in one thread: write each block's first byte of gaps and its width."""
    byte, status = np.int64(0), np.int64(0)
    for first in range(0, length, BITPACK_BLOCK):
        if byte >= size:
            status = np.int64(TRUNCATED)
            break
        width = np.int64(payload[byte])
        if width > MOST_WIDTH:
            status = np.int64(WIDTH)
            break
        block = first // BITPACK_BLOCK
        blocks[block, 0] = byte + 1
        blocks[block, 1] = width
        byte += 1 + ((min(BITPACK_BLOCK, length - first) * width + 7) >> 3)
        if byte > size:
            status = np.int64(TRUNCATED)
            break
    if status == 0 and byte < size:
        status = np.int64(TRAILING)
    flags[0] = status


@kernel("uint8[::1], int64, int64[:, ::1], int64[::1], int64[::1]")
def read_bitpack(payload: Any, length: Any, blocks: Any, steps: Any, flags: Any) -> None:
    """Read a block's gaps, plus 1 each, and leave 1 in its flag where a bit behind them is set."""
    block = block_number()
    first, end = block * BITPACK_BLOCK, min((block + 1) * BITPACK_BLOCK, length)
    start, width = blocks[block, 0], blocks[block, 1]
    for i in range(first + thread_number(), end, THREADS):
        steps[i] = read_bits(payload, 8 * start + (i - first) * width, width) + 1
    if thread_number() == 0:
        bits = (end - first) * width
        rest = bits & 7
        flags[block] = 1 if rest != 0 and np.int64(payload[start + (bits >> 3)]) >> rest != 0 else 0


@kernel("int64[::1], int64, uint32[::1]")
def take_sums(sums: Any, length: Any, indices: Any) -> None:
    """An index is the sum of all gaps up to its own, plus 1 each, less 1."""
    for i in range(first_place(), length, stride()):
        indices[i] = sums[i + 1] - 1


class CudaBitpack:
    """See :class:`sparse_ring.kernels.base.Kernels`."""

    def bitpack_encode(self, indices: Indices, numel: int, out: Bytes) -> int:
        """Encode indices; returns the bytes written."""
        at, length = ordered(indices, numel), len(indices)
        need_room(out, bitpack_bound(length) if length else 0)
        if length == 0:
            return 0
        widths, starts, blocks = _measured(at)
        to, size = room_for("out", out, np.uint8), last_of(starts, blocks + 1)
        launch(write_bitpack, blocks, at, length, widths, starts, to)
        bring_back(to, out, size)
        return size

    def bitpack_size(self, indices: Indices) -> int:
        """Return the bytes of bit-packed gaps."""
        if len(indices) == 0:
            return 0
        _, starts, blocks = _measured(on_device("indices", indices, np.uint32))
        return last_of(starts, blocks + 1)

    def bitpack_decode(self, payload: Bytes, numel: int, indices: Indices) -> None:
        """Decode indices, distrusting the payload."""
        need_numel(numel)
        length = len(indices)
        data = on_device("payload", payload, np.uint8)
        blocks = -(-length // BITPACK_BLOCK)
        table, flags = empty((max(1, blocks), 2), np.int64), empty(max(1, blocks), np.int64)
        launch(find_blocks, 1, data, len(payload), length, table, flags, threads=1)
        status = last_of(flags, 1)
        if status:
            refuse(CODE, str(BY_STATUS[status]))
        if length == 0:
            return
        steps = empty(length, np.int64)
        launch(read_bitpack, blocks, data, length, table, steps, flags)
        if worst_of(flags):
            refuse(CODE, reasons.PADDING)
        sums = scan(steps, length)
        if last_of(sums, length + 1) > numel:
            refuse(CODE, reasons.INDEX)
        taken = empty(length, np.uint32)
        launch(take_sums, strides(length), sums, length, taken)
        give("indices", taken, indices)


def _measured(indices: Any) -> tuple[Any, Any, int]:
    """On the device: each block's width, each block's first byte; and how many blocks there are."""
    length = len(indices)
    blocks = -(-length // BITPACK_BLOCK)
    widths, sizes = empty(blocks, np.int64), empty(blocks, np.int64)
    launch(measure_widths, blocks, indices, length, widths, sizes)
    return widths, scan(sizes, blocks), blocks
