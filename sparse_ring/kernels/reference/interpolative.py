"""The binary interpolative code of indices in plain Python: written for reading; specified in ``base.py``."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sparse_ring.errors import MessageError
from sparse_ring.kernels import reasons
from sparse_ring.kernels.base import Bytes, Indices, interpolative_bound
from sparse_ring.kernels.reference.indices import gaps_of, need_room

_CODE = "interpolatively coded indices"


def _order(count: int) -> Iterator[tuple[int, int, int]]:
    """Numbers from 1 to ``count`` level by level, each with its neighbours, which came before or are 0 or ``count`` + 1."""
    for level in reversed(range(count.bit_length())):
        stride = 2**level
        for i in range(stride, count + 1, 2 * stride):
            yield i, i - stride, min(i + stride, count + 1)


def _place(known: list[int], i: int, left: int, right: int) -> tuple[int, int]:
    """The least index that element ``i`` can have, and how many it can have."""
    return known[left] + i - left, known[right] - known[left] - (right - left - 1)


def _choice(possible: int) -> tuple[int, int, int]:
    """Width, how many numbers take just that, and how many of the others lie below these."""
    width = possible.bit_length() - 1
    cut = 2 ** (width + 1) - possible
    return width, cut, (possible - cut) // 2


def _coded(indices: Indices, numel: int) -> tuple[int, int]:
    """The code as a number, lowest bit first, and its length in bits."""
    gaps_of(indices, numel)
    known, bits, filled = [-1, *indices.tolist(), numel], 0, 0
    for i, left, right in _order(len(indices)):
        least, possible = _place(known, i, left, right)
        width, cut, before = _choice(possible)
        number = (known[i] - least - before) % possible
        if number >= cut:
            number, width = (number + cut) >> 1 | ((number + cut) & 1) << width, width + 1
        bits |= number << filled
        filled += width
    return bits, filled


def interpolative_encode(indices: Indices, numel: int, out: Bytes) -> int:
    """Encode strictly increasing indices; returns the bytes written."""
    bits, filled = _coded(indices, numel)
    need_room(out, interpolative_bound(len(indices), numel))
    stream = bits.to_bytes(-(-filled // 8), "little")
    out[: len(stream)] = np.frombuffer(stream, dtype=np.uint8)
    return len(stream)


def interpolative_size(indices: Indices, numel: int) -> int:
    """Return the bytes that ``interpolative_encode`` would write."""
    return -(-_coded(indices, numel)[1] // 8)


def interpolative_decode(payload: Bytes, numel: int, indices: Indices) -> None:
    """Decode exactly ``len(indices)`` indices, or raise MessageError."""
    count = len(indices)
    if count > numel:
        raise MessageError(f"{_CODE}: {reasons.INDEX}")
    bits = np.unpackbits(payload, bitorder="little").tobytes()
    known, position = [-1] + [0] * count + [numel], 0
    for i, left, right in _order(count):
        least, possible = _place(known, i, left, right)
        width, cut, before = _choice(possible)
        number = sum(bit << place for place, bit in enumerate(bits[position : position + width]))
        if number >= cut:
            number = 2 * number + sum(bits[position + width : position + width + 1]) - cut
            width += 1
        position += width
        if position > len(bits):
            raise MessageError(f"{_CODE}: {reasons.TRUNCATED}")
        known[i] = least + (number + before) % possible
    if len(bits) - position >= 8:
        raise MessageError(f"{_CODE}: {reasons.TRAILING}")
    if any(bits[position:]):
        raise MessageError(f"{_CODE}: {reasons.PADDING}")
    indices[:] = known[1:-1]
