"""Positions inside blocks of 65,536 as 16-bit numbers, on the device."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from sparse_ring.kernels import reasons
from sparse_ring.kernels.base import Bytes, Indices, block16_bound
from sparse_ring.kernels.cpu.indices import need_numel
from sparse_ring.kernels.cuda.arithmetic import first_place, stride
from sparse_ring.kernels.cuda.indices import need_room, ordered, refuse, refuse_disorder
from sparse_ring.kernels.cuda.memory import bring_back, empty, give, launch, on_device, on_host, room_for, strides
from sparse_ring.kernels.cuda.scan import last_of, scan, worst_of
from sparse_ring.kernels.cuda.warp import (
    THREADS,
    WARPS,
    block_number,
    device,
    first_above,
    kernel,
    largest_of,
    thread_number,
)

CODE = "16-bit indices"
BLOCK_BITS = 16
NUMBER_BYTES, ENTRY_BYTES, OFFSET_BYTES = 4, 4, 2


@kernel("uint32[::1], int64, int64[::1]")
def mark_heads(indices: Any, length: Any, heads: Any) -> None:
    """Write 1 where a block begins, else 0."""
    for i in range(first_place(), length, stride()):
        new = i == 0 or np.int64(indices[i]) >> BLOCK_BITS != np.int64(indices[i - 1]) >> BLOCK_BITS
        heads[i] = 1 if new else 0


@kernel("int64[::1], int64, int64[::1], int64[::1]")
def find_heads(heads: Any, length: Any, numbers: Any, firsts: Any) -> None:
    """Write each block's first element, and ``length`` behind the last block's: ``firsts`` is int64[blocks + 1]."""
    for i in range(first_place(), length, stride()):
        if heads[i] == 1:
            firsts[numbers[i]] = i
        if i == length - 1:
            firsts[numbers[length]] = length


@kernel("uint32[::1], int64, int64, int64[::1], uint8[::1]")
def write_block16(indices: Any, length: Any, blocks: Any, firsts: Any, out: Any) -> None:
    """Write the number of blocks, an entry for each, and each element's place in its block, a byte a thread."""
    begin = NUMBER_BYTES + ENTRY_BYTES * blocks
    for byte in range(first_place(), begin + OFFSET_BYTES * length, stride()):
        if byte >= begin:
            number = np.int64(indices[(byte - begin) // OFFSET_BYTES])
            value = number >> (8 * (byte & 1))
        elif byte < NUMBER_BYTES:
            value = blocks >> (8 * byte)
        else:
            block = (byte - NUMBER_BYTES) // ENTRY_BYTES
            first = firsts[block]
            number = np.int64(indices[first]) >> BLOCK_BITS
            if byte & 2 != 0:
                number = firsts[block + 1] - first - 1
            value = number >> (8 * (byte & 1))
        out[byte] = value & 0xFF


@device
def _short(payload: Any, at: Any) -> Any:
    return np.int64(payload[at]) | np.int64(payload[at + 1]) << 8


@kernel("uint8[::1], int64, int64[::1], int64[::1]")
def read_entries(payload: Any, blocks: Any, counts: Any, flags: Any) -> None:
    """Write how many elements each block has; leave 1 in a flag where blocks do not increase."""
    values = cuda.shared.array(THREADS, np.int64)
    of_warps = cuda.shared.array(WARPS, np.int64)
    bad = np.int64(0)
    for block in range(first_place(), blocks, stride()):
        entry = NUMBER_BYTES + ENTRY_BYTES * block
        counts[block] = _short(payload, entry + 2) + 1
        if block > 0 and _short(payload, entry) <= _short(payload, entry - ENTRY_BYTES):
            bad = np.int64(1)
    bad = largest_of(bad, values, of_warps)
    if thread_number() == 0:
        flags[block_number()] = bad


@kernel("uint8[::1], int64, int64, int64[::1], uint32[::1]")
def read_block16(payload: Any, length: Any, blocks: Any, firsts: Any, indices: Any) -> None:
    """An index is its block's number and its place in it."""
    begin = NUMBER_BYTES + ENTRY_BYTES * blocks
    for i in range(first_place(), length, stride()):
        block = first_above(firsts, blocks, i) - np.int64(1)
        number = _short(payload, NUMBER_BYTES + ENTRY_BYTES * block)
        indices[i] = number << BLOCK_BITS | _short(payload, begin + OFFSET_BYTES * i)


class CudaBlock16:
    """See :class:`sparse_ring.kernels.base.Kernels`."""

    def block16_encode(self, indices: Indices, numel: int, out: Bytes) -> int:
        """Encode indices; returns the bytes written."""
        at, length = ordered(indices, numel), len(indices)
        need_room(out, block16_bound(length, numel))
        if length == 0:
            return 0
        heads, numbers, blocks = _blocks_of(at)
        firsts = empty(blocks + 1, np.int64)
        launch(find_heads, strides(length), heads, length, numbers, firsts)
        size = _size(length, blocks)
        to = room_for("out", out, np.uint8)
        launch(write_block16, strides(size), at, length, blocks, firsts, to)
        bring_back(to, out, size)
        return size

    def block16_size(self, indices: Indices) -> int:
        """Return the bytes of 16-bit indices."""
        at, length = on_device("indices", indices, np.uint32), len(indices)
        return _size(length, _blocks_of(at)[2]) if length else 0

    def block16_decode(self, payload: Bytes, numel: int, indices: Indices) -> None:
        """Decode indices, distrusting the payload."""
        need_numel(numel)
        length, size = len(indices), len(payload)
        if length == 0:
            if size:
                refuse(CODE, reasons.TRAILING)
            return
        blocks = int(np.frombuffer(on_host(payload[:4]).tobytes(), "<u4")[0]) if size >= NUMBER_BYTES else 0
        if size < NUMBER_BYTES + ENTRY_BYTES * blocks:
            refuse(CODE, reasons.HEADER)
        if size != _size(length, blocks):
            refuse(CODE, reasons.TRUNCATED if size < _size(length, blocks) else reasons.TRAILING)
        data = on_device("payload", payload, np.uint8)
        counts, flags = empty(blocks, np.int64), empty(strides(blocks), np.int64)
        launch(read_entries, strides(blocks), data, blocks, counts, flags)
        firsts = scan(counts, blocks)
        if blocks == 0 or worst_of(flags) or last_of(firsts, blocks + 1) != length:
            refuse(CODE, reasons.DIRECTORY)
        read = empty(length, np.uint32)
        launch(read_block16, strides(length), data, length, blocks, firsts, read)
        refuse_disorder(CODE, read, numel)
        give("indices", read, indices)


def _size(length: int, blocks: int) -> int:
    return NUMBER_BYTES + ENTRY_BYTES * blocks + OFFSET_BYTES * length


def _blocks_of(indices: Any) -> tuple[Any, Any, int]:
    """On the device: 1 where a block begins, and the number of the block that begins there; and how many there are."""
    length = len(indices)
    heads = empty(length, np.int64)
    launch(mark_heads, strides(length), indices, length, heads)
    numbers = scan(heads, length)
    return heads, numbers, last_of(numbers, length + 1)
