"""The binary interpolative code on the device.

What an element may be follows from indices alone, so the encoder makes all codes side by side, sums their lengths, and
puts each byte together with one thread. The decoder runs in one thread: where an element begins follows from all before it,
because the numbers in the middle of each choice are a bit shorter.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sparse_ring.kernels import reasons
from sparse_ring.kernels.base import Bytes, Indices, interpolative_bound
from sparse_ring.kernels.cpu.indices import need_numel
from sparse_ring.kernels.cuda.arithmetic import first_place, stride
from sparse_ring.kernels.cuda.indices import need_room, ordered, refuse
from sparse_ring.kernels.cuda.memory import bring_back, empty, give, launch, on_device, room_for, strides
from sparse_ring.kernels.cuda.scan import last_of, scan
from sparse_ring.kernels.cuda.warp import bit_length, device, first_above, kernel, read_bits

CODE = "interpolatively coded indices"
TRUNCATED, TRAILING, PADDING = range(1, 4)
BY_STATUS = (None, reasons.TRUNCATED, reasons.TRAILING, reasons.PADDING)


@device
def _known(indices: Any, i: Any, length: Any, numel: Any) -> Any:
    """Index i of those counted from 1, with -1 before them and ``numel`` behind."""
    if i == 0:
        return np.int64(-1)
    if i > length:
        return numel
    return np.int64(indices[i - 1])


@device
def _place(indices: Any, i: Any, step: Any, length: Any, numel: Any) -> Any:
    """The least index that element i can have, and how many it can have; its neighbours are a step away."""
    left, right = i - step, min(i + step, length + 1)
    above = _known(indices, left, length, numel)
    return above + step, _known(indices, right, length, numel) - above - (right - left - 1)


@device
def _choice(possible: Any) -> Any:
    """Width, how many numbers take just that, and how many of the others lie below these."""
    width = bit_length(possible) - np.int64(1)
    cut = (np.int64(2) << width) - possible
    return width, cut, (possible - cut) >> 1


@kernel("uint32[::1], int64, int64, int64[::1], int64[::1]")
def make_codes(indices: Any, length: Any, numel: Any, codes: Any, bits: Any) -> None:
    """Write each element's code and how many bits it takes, in the order of the levels."""
    for place in range(first_place(), length, stride()):
        # Before the elements of a level come length // (2 * step) others.
        step = np.int64(1) << (bit_length(length // (place + 1)) - 1)
        i = step * (2 * (place - length // (2 * step)) + 1)
        least, possible = _place(indices, i, step, length, numel)
        width, cut, before = _choice(possible)
        number = np.int64(indices[i - 1]) - least - before
        if number < 0:
            number += possible
        if number >= cut:
            shifted = number + cut
            number = shifted >> 1 | (shifted & 1) << width
            width += np.int64(1)
        codes[place] = number
        bits[place] = width


@kernel("int64[::1], int64[::1], int64, uint8[::1]")
def write_codes(codes: Any, starts: Any, length: Any, out: Any) -> None:
    """Write the codes, a byte a thread."""
    for byte in range(first_place(), (starts[length] + 7) >> 3, stride()):
        position, value = 8 * byte, np.int64(0)
        # The last element that begins at or before this byte. Elements of no bits begin where the next one does: there may be
        # millions in a row, and only the last of them can have some.
        i = first_above(starts, length, position) - np.int64(1)
        while i < length and starts[i] < position + 8:
            ahead = starts[i] - position
            value |= codes[i] << ahead if ahead >= 0 else codes[i] >> -ahead
            i += np.int64(1)
            if i < length and starts[i + 1] == starts[i]:
                i = first_above(starts, length, starts[i]) - np.int64(1)
        out[byte] = value & 0xFF


@kernel("uint8[::1], int64, int64, int64, uint32[::1], int64[::1]")
def read_interpolative(payload: Any, size: Any, length: Any, numel: Any, indices: Any, flags: Any) -> None:
    """Read all elements, level by level: any bits stand for increasing indices below ``numel``, only their number can be wrong."""
    end, position, status = 8 * size, np.int64(0), np.int64(0)
    step = np.int64(1) << (bit_length(length) - 1)
    i = step
    for _ in range(length):
        least, possible = _place(indices, i, step, length, numel)
        width, cut, before = _choice(possible)
        if position + width > end:
            status = np.int64(TRUNCATED)
            break
        number = read_bits(payload, position, width)
        position += width
        if number >= cut:
            if position >= end:
                status = np.int64(TRUNCATED)
                break
            number = 2 * number + read_bits(payload, position, np.int64(1)) - cut
            position += np.int64(1)
        number += before
        if number >= possible:
            number -= possible
        indices[i - 1] = least + number
        i += 2 * step
        if i > length:
            step >>= 1
            i = step
    if status == 0:
        if end - position >= 8:
            status = np.int64(TRAILING)
        elif position < end and np.int64(payload[position >> 3]) >> (position & 7) != 0:
            status = np.int64(PADDING)
    flags[0] = status


class CudaInterpolative:
    """See :class:`sparse_ring.kernels.base.Kernels`."""

    def interpolative_encode(self, indices: Indices, numel: int, out: Bytes) -> int:
        """Encode indices; returns the bytes written."""
        at, length = ordered(indices, numel), len(indices)
        need_room(out, interpolative_bound(length, numel))
        if length == 0:
            return 0
        codes, starts = _coded(at, numel)
        size = (last_of(starts, length + 1) + 7) // 8
        to = room_for("out", out, np.uint8)
        launch(write_codes, strides(size), codes, starts, length, to)
        bring_back(to, out, size)
        return size

    def interpolative_size(self, indices: Indices, numel: int) -> int:
        """Return the bytes of the interpolative code."""
        at, length = ordered(indices, numel), len(indices)
        return (last_of(_coded(at, numel)[1], length + 1) + 7) // 8 if length else 0

    def interpolative_decode(self, payload: Bytes, numel: int, indices: Indices) -> None:
        """Decode indices, distrusting the payload."""
        need_numel(numel)
        length = len(indices)
        if length > numel:
            refuse(CODE, reasons.INDEX)
        if length == 0:
            if len(payload):
                refuse(CODE, reasons.TRAILING)
            return
        read, flags = empty(length, np.uint32), empty(1, np.int64)
        data = on_device("payload", payload, np.uint8)
        launch(read_interpolative, 1, data, len(payload), length, numel, read, flags, threads=1)
        status = last_of(flags, 1)
        if status:
            refuse(CODE, str(BY_STATUS[status]))
        give("indices", read, indices)


def _coded(indices: Any, numel: int) -> tuple[Any, Any]:
    """On the device: the elements' codes in the order of the levels, and where each begins."""
    length = len(indices)
    codes, bits = empty(length, np.int64), empty(length, np.int64)
    launch(make_codes, strides(length), indices, length, numel, codes, bits)
    return codes, scan(bits, length)
