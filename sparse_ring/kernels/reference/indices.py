"""The codes of gaps between indices in NumPy and plain Python: written for reading; specified in ``base.py``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sparse_ring.errors import MessageError
from sparse_ring.kernels import reasons
from sparse_ring.kernels.base import BLOCK, Bytes, Indices, bitpack_bound, golomb_bound, golomb_modulus

BITPACK_BLOCK = 128


def gaps_of(indices: Indices, numel: int) -> NDArray[np.int64]:
    """Return each index minus the one before minus 1; raises ValueError unless they increase strictly below ``numel``."""
    gaps = indices.astype(np.int64)
    gaps[1:] -= gaps[:-1].copy() + 1
    if len(indices) and (gaps.min() < 0 or indices[-1] >= numel):
        raise ValueError(f"indices must be strictly increasing and below numel, which is {numel}.")
    return gaps


def need_room(out: Bytes, bound: int) -> None:
    """Raise ValueError where ``out`` holds fewer bytes than ``bound``."""
    if len(out) < bound:
        raise ValueError(f"out has {len(out)} bytes, but must have at least {bound}.")


def _little_endian(*numbers: int) -> bytes:
    return np.array(numbers, dtype="<u4").tobytes()


def _to_bits(values: NDArray[np.int64], width: int) -> NDArray[np.uint8]:
    """One row of ``width`` bits for each value, LSB first."""
    return (values[:, np.newaxis] >> np.arange(width) & 1).astype(np.uint8)


def _golomb_block(gaps: NDArray[np.int64], modulus: int) -> bytes:
    width = modulus.bit_length() - 1
    cut = 2 ** (width + 1) - modulus
    quotients, remainders = np.divmod(gaps, modulus)
    longer = remainders >= cut
    heads = np.where(longer, (remainders + cut) >> 1, remainders)
    ends = np.cumsum(quotients + 1 + width + longer)
    starts = ends - (quotients + 1 + width + longer)
    bits = np.zeros(ends[-1], dtype=np.uint8)
    bits[starts + quotients] = 1
    bits[(starts + quotients + 1)[:, np.newaxis] + np.arange(width)] = _to_bits(heads, width)
    bits[ends[longer] - 1] = (remainders[longer] + cut) & 1
    return np.packbits(bits, bitorder="little").tobytes()


def golomb_encode(indices: Indices, numel: int, out: Bytes) -> int:
    """Encode strictly increasing indices; returns the bytes written."""
    gaps = gaps_of(indices, numel)
    count = len(indices)
    need_room(out, golomb_bound(count, numel))
    if count == 0:
        return 0
    modulus = golomb_modulus(count, numel)
    starts = range(0, count, BLOCK)
    blocks = [_golomb_block(gaps[start : start + BLOCK], modulus) for start in starts]
    lasts = [int(indices[start + BLOCK - 1]) for start in starts[:-1]]
    directory = [_little_endian(len(block), last) for block, last in zip(blocks, lasts, strict=False)]
    stream = b"".join([_little_endian(modulus), *directory, *blocks])
    out[: len(stream)] = np.frombuffer(stream, dtype=np.uint8)
    return len(stream)


def golomb_size(indices: Indices, numel: int) -> int:
    """Return the bytes that ``golomb_encode`` would write."""
    if len(indices) == 0:
        return 0
    gaps, modulus = gaps_of(indices, numel), golomb_modulus(len(indices), numel)
    width = modulus.bit_length() - 1
    bits = gaps // modulus + 1 + width + (gaps % modulus >= 2 ** (width + 1) - modulus)
    blocks = np.add.reduceat(bits, np.arange(0, len(gaps), BLOCK))
    return 4 + 8 * (len(blocks) - 1) + int(np.sum((blocks + 7) // 8))


class _Bits:
    """Reads bits of one block, LSB first."""

    def __init__(self, block: Bytes) -> None:
        self.bits = np.unpackbits(block, bitorder="little").tobytes()
        self.position = 0

    def zeros(self) -> int:
        """Skip zeros and the one that ends them; return how many zeros."""
        one = self.bits.find(1, self.position)
        if one < 0:
            raise MessageError(f"Golomb-coded indices: {reasons.TRUNCATED}")
        count, self.position = one - self.position, one + 1
        return count

    def number(self, width: int) -> int:
        """Read a number of ``width`` bits."""
        bits = self.bits[self.position : self.position + width]
        if len(bits) < width:
            raise MessageError(f"Golomb-coded indices: {reasons.TRUNCATED}")
        self.position += width
        return sum(bit << place for place, bit in enumerate(bits))

    def finish(self) -> None:
        """Check that less than a byte is left, and that it is zero."""
        if len(self.bits) - self.position >= 8:
            raise MessageError(f"Golomb-coded indices: {reasons.TRAILING}")
        if any(self.bits[self.position :]):
            raise MessageError(f"Golomb-coded indices: {reasons.PADDING}")


def _golomb_gap(bits: _Bits, modulus: int) -> int:
    width = modulus.bit_length() - 1
    cut = 2 ** (width + 1) - modulus
    quotient = bits.zeros()
    head = bits.number(width)
    remainder = head if head < cut else 2 * head + bits.number(1) - cut
    return quotient * modulus + remainder


def golomb_decode(payload: Bytes, numel: int, indices: Indices) -> None:
    """Decode exactly ``len(indices)`` indices, or raise MessageError."""
    count = len(indices)
    if count == 0:
        if len(payload):
            raise MessageError(f"Golomb-coded indices: {reasons.TRAILING}")
        return
    blocks = -(-count // BLOCK)
    begin = 4 + 8 * (blocks - 1)
    if len(payload) < begin:
        raise MessageError(f"Golomb-coded indices: {reasons.HEADER}")
    modulus, *directory = (int(number) for number in payload[:begin].view("<u4"))
    if modulus == 0:
        raise MessageError(f"Golomb-coded indices: {reasons.MODULUS}")
    index = -1
    for block in range(blocks):
        last_block = block == blocks - 1
        end = len(payload) if last_block else begin + directory[2 * block]
        if end > len(payload):
            raise MessageError(f"Golomb-coded indices: {reasons.DIRECTORY}")
        bits = _Bits(payload[begin:end])
        for position in range(block * BLOCK, min(count, (block + 1) * BLOCK)):
            index += 1 + _golomb_gap(bits, modulus)
            if index >= numel:
                raise MessageError(f"Golomb-coded indices: {reasons.INDEX}")
            indices[position] = index
        if not last_block and index != directory[2 * block + 1]:
            raise MessageError(f"Golomb-coded indices: {reasons.DIRECTORY}")
        bits.finish()
        begin = end


def bitpack_encode(indices: Indices, numel: int, out: Bytes) -> int:
    """Encode strictly increasing indices; returns the bytes written."""
    gaps = gaps_of(indices, numel)
    need_room(out, bitpack_bound(len(indices)) if len(indices) else 0)
    stream = b""
    for start in range(0, len(gaps), BITPACK_BLOCK):
        block = gaps[start : start + BITPACK_BLOCK]
        width = int(block.max()).bit_length()
        stream += bytes([width]) + np.packbits(_to_bits(block, width), bitorder="little").tobytes()
    out[: len(stream)] = np.frombuffer(stream, dtype=np.uint8)
    return len(stream)


def bitpack_size(indices: Indices) -> int:
    """Return the bytes that ``bitpack_encode`` would write."""
    gaps = gaps_of(indices, 2**32)
    blocks = [gaps[start : start + BITPACK_BLOCK] for start in range(0, len(gaps), BITPACK_BLOCK)]
    return sum(1 + (len(block) * int(block.max()).bit_length() + 7) // 8 for block in blocks)


def bitpack_decode(payload: Bytes, numel: int, indices: Indices) -> None:
    """Decode exactly ``len(indices)`` indices, or raise MessageError."""
    begin, index = 0, -1
    for start in range(0, len(indices), BITPACK_BLOCK):
        count = min(BITPACK_BLOCK, len(indices) - start)
        if begin == len(payload):
            raise MessageError(f"bit-packed indices: {reasons.TRUNCATED}")
        width = int(payload[begin])
        if width > 32:
            raise MessageError(f"bit-packed indices: {reasons.WIDTH}")
        end = begin + 1 + (count * width + 7) // 8
        if end > len(payload):
            raise MessageError(f"bit-packed indices: {reasons.TRUNCATED}")
        bits = np.unpackbits(payload[begin + 1 : end], bitorder="little")
        if bits[count * width :].any():
            raise MessageError(f"bit-packed indices: {reasons.PADDING}")
        gaps = (bits[: count * width].reshape(count, width).astype(np.int64) << np.arange(width)).sum(axis=1)
        decoded = index + np.cumsum(gaps + 1)
        index = int(decoded[-1])
        if index >= numel:
            raise MessageError(f"bit-packed indices: {reasons.INDEX}")
        indices[start : start + count] = decoded
        begin = end
    if begin != len(payload):
        raise MessageError(f"bit-packed indices: {reasons.TRAILING}")
