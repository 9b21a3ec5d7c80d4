"""Golomb-coded gaps on the device.

The encoder knows each element's bits before it writes one, so their sums say where each begins, and every byte of the payload
is put together by one thread from the elements that lie in it. The decoder reads a block of 4,096 elements with one
thread, because an element's place is known when the one before has been read; blocks are read side by side.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sparse_ring.kernels import reasons
from sparse_ring.kernels.base import BLOCK, Bytes, Indices, golomb_bound, golomb_modulus
from sparse_ring.kernels.cpu.indices import need_numel
from sparse_ring.kernels.cuda.arithmetic import first_place, stride
from sparse_ring.kernels.cuda.indices import gap_before, need_room, ordered, refuse
from sparse_ring.kernels.cuda.memory import bring_back, empty, give, launch, on_device, on_host, room_for, strides
from sparse_ring.kernels.cuda.scan import last_of, scan
from sparse_ring.kernels.cuda.warp import (
    block_number,
    device,
    first_above,
    kernel,
    read_bits,
    trailing_zeros,
)

CODE = "Golomb-coded indices"
MODULUS_BYTES, ENTRY_BYTES = 4, 8
LONGEST = 40  # more bits than an element has from its one on
BY_STATUS = (None, reasons.TRUNCATED, reasons.INDEX, reasons.DIRECTORY, reasons.TRAILING, reasons.PADDING)
TRUNCATED, INDEX, DIRECTORY, TRAILING, PADDING = range(1, 6)


@device
def _binary_bits(remainder: Any, modulus: Any, width: Any) -> Any:
    """How many bits a remainder takes in truncated binary."""
    return width + np.int64(1) if remainder >= (np.int64(2) << width) - modulus else width


@kernel("uint32[::1], int64, int64, int64, int64[::1]")
def measure_elements(indices: Any, length: Any, modulus: Any, width: Any, bits: Any) -> None:
    """Write how many bits each element takes."""
    for i in range(first_place(), length, stride()):
        gap = gap_before(indices, i)
        bits[i] = gap // modulus + np.int64(1) + _binary_bits(gap % modulus, modulus, width)


@kernel("int64[::1], int64, int64, int64[::1]")
def measure_blocks(starts: Any, length: Any, blocks: Any, sizes: Any) -> None:
    """Write how many bytes each block takes."""
    for block in range(first_place(), blocks, stride()):
        end = min((block + 1) * BLOCK, length)
        sizes[block] = (starts[end] - starts[block * BLOCK] + 7) >> 3


@kernel("uint32[::1], int64, int64, int64[::1], uint8[::1]")
def write_golomb_head(indices: Any, modulus: Any, blocks: Any, sizes: Any, out: Any) -> None:
    """Write the modulus and the directory, a byte a thread."""
    for byte in range(first_place(), MODULUS_BYTES + ENTRY_BYTES * (blocks - 1), stride()):
        number = modulus
        if byte >= MODULUS_BYTES:
            block = (byte - MODULUS_BYTES) // ENTRY_BYTES
            number = sizes[block]
            if byte & 4 == 0:  # the entry's second half: entries begin 4 bytes past a multiple of 8
                number = np.int64(indices[(block + 1) * BLOCK - 1])
        out[byte] = (number >> (8 * (byte & 3))) & 0xFF


@device
def _element_byte(gap: Any, modulus: Any, width: Any, shift: Any) -> Any:
    """An element's part of a byte that begins ``shift`` bits after it (before it where negative)."""
    quotient, remainder = gap // modulus, gap % modulus
    cut = (np.int64(2) << width) - modulus
    if remainder >= cut:
        head, tail = (remainder + cut) >> 1, (remainder + cut) & 1
    else:
        head, tail = remainder, np.int64(0)
    code = np.int64(1) | head << 1 | tail << (width + 1)
    shift -= quotient
    if shift >= LONGEST or shift <= -8:
        return np.int64(0)
    return (code >> shift if shift >= 0 else code << -shift) & 0xFF


@kernel("uint32[::1], int64, int64, int64, int64[::1], int64, int64[::1], int64, uint8[::1]")
def write_golomb(
    indices: Any,
    length: Any,
    modulus: Any,
    width: Any,
    starts: Any,
    blocks: Any,
    byte_starts: Any,
    begin: Any,
    out: Any,
) -> None:
    """Write the blocks, which begin at byte ``begin``, a byte a thread."""
    for byte in range(first_place(), byte_starts[blocks], stride()):
        block = first_above(byte_starts, blocks, byte) - np.int64(1)
        first, end = block * BLOCK, min((block + 1) * BLOCK, length)
        position = starts[first] + 8 * (byte - byte_starts[block])
        i = first_above(starts, length, position) - np.int64(1)
        value = np.int64(0)
        while i < end and starts[i] < position + 8:
            value |= _element_byte(gap_before(indices, i), modulus, width, position - starts[i])
            i += np.int64(1)
        out[begin + byte] = value


@kernel("uint8[::1], int64, int64, int64, int64[:, ::1], uint32[::1], int64[::1]")
def read_golomb(payload: Any, length: Any, modulus: Any, numel: Any, blocks: Any, indices: Any, flags: Any) -> None:
    """Read one block: ``blocks`` has its first and last byte, the index before it and the promised last one or -1."""
    block = block_number()
    position, end = 8 * blocks[block, 0], 8 * blocks[block, 1]
    index, promised, status = blocks[block, 2], blocks[block, 3], np.int64(0)
    width = np.int64(0)
    while modulus >> (width + 1) > 0:
        width += np.int64(1)
    cut = (np.int64(2) << width) - modulus
    most_quotient = numel // modulus
    for i in range(block * BLOCK, min((block + 1) * BLOCK, length)):
        quotient, found = np.int64(0), False
        while position < end and not found:
            byte = np.int64(payload[position >> 3]) >> (position & 7)
            found = byte != 0
            zeros = trailing_zeros(byte) if found else 8 - (position & 7)
            quotient += zeros
            position += zeros
        if not found or position + 1 + width > end:
            status = np.int64(TRUNCATED)
            break
        if quotient > most_quotient:
            status = np.int64(INDEX)
            break
        remainder = read_bits(payload, position + 1, width)
        position += width + 1
        if remainder >= cut:
            if position >= end:
                status = np.int64(TRUNCATED)
                break
            remainder = 2 * remainder + read_bits(payload, position, np.int64(1)) - cut
            position += np.int64(1)
        index += quotient * modulus + remainder + 1
        if index >= numel:
            status = np.int64(INDEX)
            break
        indices[i] = index
    if status == 0:
        if promised >= 0 and index != promised:
            status = np.int64(DIRECTORY)
        elif end - position >= 8:
            status = np.int64(TRAILING)
        elif position < end and np.int64(payload[position >> 3]) >> (position & 7) != 0:
            status = np.int64(PADDING)
    flags[block] = status


def _directory(payload: Bytes, blocks: int) -> tuple[int, Any]:
    """The modulus, and for each block what ``read_golomb`` needs; raises MessageError where they cannot be."""
    begin = MODULUS_BYTES + ENTRY_BYTES * (blocks - 1)
    if len(payload) < begin:
        refuse(CODE, reasons.HEADER)
    numbers = np.frombuffer(on_host(payload[:begin]).tobytes(), "<u4").astype(np.int64)
    if numbers[0] == 0:
        refuse(CODE, reasons.MODULUS)
    table = np.full((blocks, 4), -1, np.int64)
    table[:, 0] = begin + np.cumsum([0, *numbers[1::2]])
    table[:, 1] = [*table[1:, 0], len(payload)]
    table[1:, 2] = table[:-1, 3] = numbers[2::2]
    if (table[:, :2] > len(payload)).any():
        refuse(CODE, reasons.DIRECTORY)
    return int(numbers[0]), table


class CudaGolomb:
    """See :class:`sparse_ring.kernels.base.Kernels`."""

    def golomb_encode(self, indices: Indices, numel: int, out: Bytes) -> int:
        """Encode indices; returns the bytes written."""
        at, length = ordered(indices, numel), len(indices)
        need_room(out, golomb_bound(length, numel))
        if length == 0:
            return 0
        modulus, width, starts, sizes, byte_starts = _measured(at, numel)
        blocks = len(sizes)
        begin = MODULUS_BYTES + ENTRY_BYTES * (blocks - 1)
        size = begin + last_of(byte_starts, blocks + 1)
        to = room_for("out", out, np.uint8)
        launch(write_golomb_head, strides(begin), at, modulus, blocks, sizes, to)
        launch(write_golomb, strides(size - begin), at, length, modulus, width, starts, blocks, byte_starts, begin, to)
        bring_back(to, out, size)
        return size

    def golomb_size(self, indices: Indices, numel: int) -> int:
        """Return the bytes of the Golomb code."""
        at = ordered(indices, numel)
        if len(indices) == 0:
            return 0
        sizes, byte_starts = _measured(at, numel)[3:]
        return MODULUS_BYTES + ENTRY_BYTES * (len(sizes) - 1) + last_of(byte_starts, len(sizes) + 1)

    def golomb_decode(self, payload: Bytes, numel: int, indices: Indices) -> None:
        """Decode indices, distrusting the payload; its directory is read on the host."""
        need_numel(numel)
        length = len(indices)
        if length == 0:
            if len(payload):
                refuse(CODE, reasons.TRAILING)
            return
        blocks = -(-length // BLOCK)
        data, read = on_device("payload", payload, np.uint8), empty(length, np.uint32)
        modulus, table = _directory(payload, blocks)
        flags, on_table = empty(blocks, np.int64), empty((blocks, 4), np.int64)
        on_table.copy_to_device(table)
        launch(read_golomb, blocks, data, length, modulus, numel, on_table, read, flags, threads=1)
        for status in flags.copy_to_host():
            if status:
                refuse(CODE, str(BY_STATUS[status]))
        give("indices", read, indices)


def _measured(indices: Any, numel: int) -> tuple[int, int, Any, Any, Any]:
    """Modulus, its width, and on the device: first bit of each element, bytes of each block, first byte of each block."""
    length = len(indices)
    modulus, blocks = golomb_modulus(length, numel), -(-length // BLOCK)
    width = modulus.bit_length() - 1
    bits, sizes = empty(length, np.int64), empty(blocks, np.int64)
    launch(measure_elements, strides(length), indices, length, modulus, width, bits)
    starts = scan(bits, length)
    launch(measure_blocks, strides(blocks), starts, length, blocks, sizes)
    return modulus, width, starts, sizes, scan(sizes, blocks)
