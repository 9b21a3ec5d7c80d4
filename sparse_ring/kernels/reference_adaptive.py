"""The Golomb code whose parameter follows the gaps, in plain Python: written for reading; specified in ``base.py``."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sparse_ring.errors import MessageError
from sparse_ring.kernels import reasons
from sparse_ring.kernels.base import (
    BLOCK,
    CLAMP,
    GROUP,
    LIMIT,
    WEIGHT,
    Bytes,
    Indices,
    golomb_adaptive_bound,
)
from sparse_ring.kernels.reference_indices import gaps_of, need_room

_CODE = "adaptively Golomb-coded indices"


class Estimate:
    """What the next gaps are taken to be, from the sum of ``count`` of them and those that were seen."""

    def __init__(self, span: int, count: int) -> None:
        self.sum = span * WEIGHT // count

    @property
    def modulus(self) -> int:
        """The Golomb parameter M."""
        return max(1, (self.sum * 45426 // 65536 + WEIGHT // 2) // WEIGHT)

    def learn(self, gaps: list[int], modulus: int) -> None:
        """Take in a group that was coded with this parameter."""
        self.sum += sum(min(gap, CLAMP * modulus) for gap in gaps) - self.sum * GROUP // WEIGHT


def _element(gap: int, modulus: int, raw_bits: int) -> tuple[int, int]:
    """Bits, lowest first, and how many."""
    quotient, remainder = divmod(gap, modulus)
    if quotient >= LIMIT:
        return gap << LIMIT, LIMIT + raw_bits
    width = modulus.bit_length() - 1
    cut = 2 ** (width + 1) - modulus
    if remainder < cut:
        return (1 | remainder << 1) << quotient, quotient + 1 + width
    binary = (remainder + cut) >> 1 | ((remainder + cut) & 1) << width
    return (1 | binary << 1) << quotient, quotient + 2 + width


def _blocks(indices: Indices, numel: int) -> Iterator[bytes]:
    """The bits of each block, padded to bytes."""
    gaps, raw_bits, begin = gaps_of(indices, numel).tolist(), numel.bit_length(), 0
    for start in range(0, len(gaps), BLOCK):
        block = gaps[start : start + BLOCK]
        end = int(indices[start + BLOCK - 1]) + 1 if start + BLOCK < len(gaps) else numel
        estimate, bits, filled = Estimate(end - begin - len(block), len(block)), 0, 0
        for first in range(0, len(block), GROUP):
            group, modulus = block[first : first + GROUP], estimate.modulus
            for gap in group:
                element, length = _element(gap, modulus, raw_bits)
                bits |= element << filled
                filled += length
            estimate.learn(group, modulus)
        yield bits.to_bytes(-(-filled // 8), "little")
        begin = end


def golomb_adaptive_encode(indices: Indices, numel: int, out: Bytes) -> int:
    """Encode strictly increasing indices; returns the bytes written."""
    gaps_of(indices, numel)
    need_room(out, golomb_adaptive_bound(len(indices), numel))
    blocks = list(_blocks(indices, numel))
    lasts = indices[BLOCK - 1 :: BLOCK].tolist()
    directory = [[len(block), last] for block, last in zip(blocks[:-1], lasts, strict=False)]
    stream = np.array(directory, dtype="<u4").tobytes() + b"".join(blocks)
    out[: len(stream)] = np.frombuffer(stream, dtype=np.uint8)
    return len(stream)


def golomb_adaptive_size(indices: Indices, numel: int) -> int:
    """Return the bytes that ``golomb_adaptive_encode`` would write."""
    blocks = [len(block) for block in _blocks(indices, numel)]
    return sum(blocks) + 8 * max(0, len(blocks) - 1)


class _Bits:
    """Reads elements of one block."""

    def __init__(self, block: Bytes, raw_bits: int) -> None:
        self.bits = np.unpackbits(block, bitorder="little").tobytes()
        self.raw_bits, self.position = raw_bits, 0

    def gap(self, modulus: int) -> int:
        """Read one gap."""
        zeros = self.bits.find(1, self.position, self.position + LIMIT)
        if zeros < 0:
            self._number(LIMIT)
            return self._number(self.raw_bits)
        quotient, self.position = zeros - self.position, zeros + 1
        width = modulus.bit_length() - 1
        cut = 2 ** (width + 1) - modulus
        head = self._number(width)
        return quotient * modulus + (head if head < cut else 2 * head + self._number(1) - cut)

    def _number(self, width: int) -> int:
        bits = self.bits[self.position : self.position + width]
        if len(bits) < width:
            raise MessageError(f"{_CODE}: {reasons.TRUNCATED}")
        self.position += width
        return sum(bit << place for place, bit in enumerate(bits))

    def finish(self) -> None:
        """Check that less than a byte is left, and that it is zero."""
        if len(self.bits) - self.position >= 8:
            raise MessageError(f"{_CODE}: {reasons.TRAILING}")
        if any(self.bits[self.position :]):
            raise MessageError(f"{_CODE}: {reasons.PADDING}")


def golomb_adaptive_decode(payload: Bytes, numel: int, indices: Indices) -> None:
    """Decode exactly ``len(indices)`` indices, or raise MessageError."""
    count = len(indices)
    if count == 0:
        if len(payload):
            raise MessageError(f"{_CODE}: {reasons.TRAILING}")
        return
    blocks = -(-count // BLOCK)
    begin = 8 * (blocks - 1)
    if len(payload) < begin:
        raise MessageError(f"{_CODE}: {reasons.HEADER}")
    directory = payload[:begin].copy().view("<u4").reshape(-1, 2).tolist()
    expected = 0
    for block, (size, last) in enumerate([*directory, [len(payload), numel - 1]]):
        last_block = block == blocks - 1
        end = len(payload) if last_block else begin + size
        elements = min(BLOCK, count - block * BLOCK)
        span = last + 1 - expected - elements
        if end > len(payload) or (span < 0 and not last_block):
            raise MessageError(f"{_CODE}: {reasons.DIRECTORY}")
        if span < 0:
            raise MessageError(f"{_CODE}: {reasons.INDEX}")
        bits, estimate = _Bits(payload[begin:end], numel.bit_length()), Estimate(span, elements)
        for first in range(block * BLOCK, block * BLOCK + elements, GROUP):
            group = [bits.gap(modulus) for modulus in [estimate.modulus] * min(GROUP, block * BLOCK + elements - first)]
            estimate.learn(group, estimate.modulus)
            decoded = expected + np.cumsum(np.array(group) + 1) - 1
            expected = int(decoded[-1]) + 1
            if expected > numel:
                raise MessageError(f"{_CODE}: {reasons.INDEX}")
            indices[first : first + len(group)] = decoded
        if not last_block and expected != last + 1:
            raise MessageError(f"{_CODE}: {reasons.DIRECTORY}")
        bits.finish()
        begin = end
