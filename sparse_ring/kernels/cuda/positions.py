"""Bitmap, Elias-Fano code and 16-bit positions on the device: every byte of a payload is one thread's."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparse_ring.kernels import reasons
from sparse_ring.kernels.base import (
    Bytes,
    Indices,
    bitmap_bound,
    elias_fano_bound,
    elias_fano_size,
    elias_fano_width,
)
from sparse_ring.kernels.cpu.indices import need_numel
from sparse_ring.kernels.cuda.arithmetic import first_place, stride
from sparse_ring.kernels.cuda.bits import set_bits
from sparse_ring.kernels.cuda.indices import need_room, ordered, refuse, refuse_disorder, take_positions
from sparse_ring.kernels.cuda.memory import bring_back, empty, give, launch, on_device, on_host, room_for, strides
from sparse_ring.kernels.cuda.scan import last_of
from sparse_ring.kernels.cuda.warp import device, first_above, kernel, read_bits

BITMAP, ELIAS_FANO = "bitmap", "Elias-Fano-coded indices"
MOST_LOW_BITS = 31


@kernel("uint32[::1], int64, int64, uint8[::1]")
def write_bitmap(indices: Any, length: Any, size: Any, out: Any) -> None:
    """Set bit i where i is an index."""
    for byte in range(first_place(), size, stride()):
        value, i = np.int64(0), first_above(indices, length, 8 * byte - 1)
        while i < length and np.int64(indices[i]) < 8 * byte + 8:
            value |= np.int64(1) << (np.int64(indices[i]) - 8 * byte)
            i += np.int64(1)
        out[byte] = value


@device
def _low_byte(indices: Any, length: Any, width: Any, bit: Any) -> Any:
    """Eight bits of the indices' low parts, from ``bit`` on."""
    value, i = np.int64(0), bit // width
    mask = (np.int64(1) << width) - 1
    while i < length and i * width < bit + 8:
        low, shift = np.int64(indices[i]) & mask, i * width - bit
        value |= low << shift if shift >= 0 else low >> -shift
        i += np.int64(1)
    return value & 0xFF


@device
def _high_byte(indices: Any, length: Any, width: Any, bit: Any) -> Any:
    """Eight bits of the high parts in unary: element i's one is at ``(index >> width) + i``."""
    low, high = np.int64(0), np.int64(length)
    while low < high:
        middle = (low + high) // np.int64(2)
        if (np.int64(indices[middle]) >> width) + middle < bit:
            low = middle + np.int64(1)
        else:
            high = middle
    value = np.int64(0)
    while low < length and (np.int64(indices[low]) >> width) + low < bit + 8:
        value |= np.int64(1) << ((np.int64(indices[low]) >> width) + low - bit)
        low += np.int64(1)
    return value


@kernel("uint32[::1], int64, int64, int64, int64, uint8[::1]")
def write_elias_fano(indices: Any, length: Any, width: Any, low_bytes: Any, size: Any, out: Any) -> None:
    """Write the width, the low parts, and the high parts in unary."""
    for byte in range(first_place(), size, stride()):
        value = np.int64(width)
        if byte > low_bytes:
            value = _high_byte(indices, length, width, 8 * (byte - 1 - low_bytes))
        elif byte > 0:
            value = _low_byte(indices, length, width, 8 * (byte - 1))
        out[byte] = value


@kernel("uint8[::1], int64, int64, int64[::1], uint32[::1]")
def join_parts(payload: Any, length: Any, width: Any, ones: Any, indices: Any) -> None:
    """An index is its high part, from the position of its one, and its low part behind the width's byte."""
    for i in range(first_place(), length, stride()):
        low = read_bits(payload, 8 + i * width, width)
        indices[i] = (ones[i] - i) << width | low


def _byte(payload: Bytes, at: int) -> int:
    return int(on_host(payload[at : at + 1])[0])


class CudaPositions:
    """See :class:`sparse_ring.kernels.base.Kernels`."""

    def bitmap_encode(self, indices: Indices, numel: int, out: Bytes) -> int:
        """Encode indices; returns the bytes written."""
        at, size = ordered(indices, numel), bitmap_bound(len(indices), numel)
        need_room(out, size)
        to = room_for("out", out, np.uint8)
        launch(write_bitmap, strides(size), at, len(indices), size, to)
        bring_back(to, out, size)
        return size

    def bitmap_decode(self, payload: Bytes, numel: int, indices: Indices) -> None:
        """Decode indices, distrusting the payload."""
        need_numel(numel)
        length, size = len(indices), bitmap_bound(len(indices), numel)
        if len(payload) != size:
            refuse(BITMAP, reasons.TRUNCATED if len(payload) < size else reasons.TRAILING)
        if numel % 8 and size and _byte(payload, size - 1) >> numel % 8:
            refuse(BITMAP, reasons.PADDING)
        count, positions = set_bits(on_device("payload", payload, np.uint8), 0, size, length)
        if count != length:
            refuse(BITMAP, reasons.COUNT)
        taken = empty(length, np.uint32)
        launch(take_positions, strides(length), positions, length, taken)
        give("indices", taken, indices)

    def elias_fano_encode(self, indices: Indices, numel: int, out: Bytes) -> int:
        """Encode indices; returns the bytes written."""
        at, length = ordered(indices, numel), len(indices)
        need_room(out, elias_fano_bound(length, numel))
        if length == 0:
            return 0
        width, size = elias_fano_width(length, numel), elias_fano_size(length, numel, last_of(at, length))
        to = room_for("out", out, np.uint8)
        launch(write_elias_fano, strides(size), at, length, width, -(-length * width // 8), size, to)
        bring_back(to, out, size)
        return size

    def elias_fano_decode(self, payload: Bytes, numel: int, indices: Indices) -> None:
        """Decode indices, distrusting the payload."""
        need_numel(numel)
        length = len(indices)
        if length == 0 or len(payload) == 0:
            if length or len(payload):
                refuse(ELIAS_FANO, reasons.HEADER if length else reasons.TRAILING)
            return
        width = _byte(payload, 0)
        if width > MOST_LOW_BITS:
            refuse(ELIAS_FANO, reasons.WIDTH)
        begin = 1 + -(-length * width // 8)
        if len(payload) < begin:
            refuse(ELIAS_FANO, reasons.TRUNCATED)
        data = on_device("payload", payload, np.uint8)
        count, ones = set_bits(data, begin, len(payload) - begin, length)
        if count < length:
            refuse(ELIAS_FANO, reasons.TRUNCATED)
        last = last_of(ones, length)
        _check_ends(payload, begin, length * width, last)
        if last - (length - 1) >= -(-numel // 2**width):
            refuse(ELIAS_FANO, reasons.INDEX)
        joined = empty(length, np.uint32)
        launch(join_parts, strides(length), data, length, width, ones, joined)
        refuse_disorder(ELIAS_FANO, joined, numel)
        give("indices", joined, indices)


def _check_ends(payload: Bytes, begin: int, low_bits: int, last: int) -> None:
    """Raise MessageError where a bit behind the low parts or behind the last one is set, or bytes follow."""
    if low_bits % 8 and _byte(payload, begin - 1) >> low_bits % 8:
        refuse(ELIAS_FANO, reasons.PADDING)
    if _byte(payload, begin + last // 8) >> last % 8 != 1:
        refuse(ELIAS_FANO, reasons.PADDING)
    if begin + last // 8 + 1 != len(payload):
        refuse(ELIAS_FANO, reasons.TRAILING)
