"""The index codes that store positions, not gaps, in NumPy: written for reading; the format is specified in ``base.py``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sparse_ring.errors import MessageError
from sparse_ring.kernels import reasons
from sparse_ring.kernels.base import (
    Bytes,
    Indices,
    bitmap_bound,
    block16_bound,
    elias_fano_bound,
    elias_fano_width,
)
from sparse_ring.kernels.reference.indices import gaps_of, need_room

BLOCK16 = 65536
MOST_LOW_BITS = 31


def _write(out: Bytes, *parts: NDArray[np.generic]) -> int:
    stream = b"".join(part.tobytes() for part in parts)
    out[: len(stream)] = np.frombuffer(stream, dtype=np.uint8)
    return len(stream)


def bitmap_encode(indices: Indices, numel: int, out: Bytes) -> int:
    """Encode strictly increasing indices; returns the bytes written."""
    gaps_of(indices, numel)
    need_room(out, bitmap_bound(len(indices), numel))
    if len(indices) == 0:
        return 0
    bits = np.zeros(numel, dtype=np.uint8)
    bits[indices] = 1
    return _write(out, np.packbits(bits, bitorder="little"))


def bitmap_decode(payload: Bytes, numel: int, indices: Indices) -> None:
    """Decode exactly ``len(indices)`` indices, or raise MessageError."""
    size = bitmap_bound(len(indices), numel)
    if len(payload) != size:
        raise MessageError(f"bitmap: {reasons.TRUNCATED if len(payload) < size else reasons.TRAILING}")
    bits = np.unpackbits(payload, bitorder="little")
    if bits[numel:].any():
        raise MessageError(f"bitmap: {reasons.PADDING}")
    positions = np.flatnonzero(bits)
    if len(positions) != len(indices):
        raise MessageError(f"bitmap: {reasons.COUNT}")
    indices[:] = positions


def elias_fano_encode(indices: Indices, numel: int, out: Bytes) -> int:
    """Encode strictly increasing indices; returns the bytes written."""
    gaps_of(indices, numel)
    count = len(indices)
    need_room(out, elias_fano_bound(count, numel))
    if count == 0:
        return 0
    width = elias_fano_width(count, numel)
    low = (indices[:, np.newaxis] >> np.arange(width, dtype=np.uint32) & 1).astype(np.uint8)
    ones = (indices.astype(np.int64) >> width) + np.arange(count)
    high = np.zeros(ones[-1] + 1, dtype=np.uint8)
    high[ones] = 1
    parts = (np.packbits(bits, bitorder="little") for bits in (low.reshape(-1), high))
    return _write(out, np.array([width], dtype=np.uint8), *parts)


def elias_fano_decode(payload: Bytes, numel: int, indices: Indices) -> None:
    """Decode exactly ``len(indices)`` indices, or raise MessageError."""
    count = len(indices)
    if count == 0 or len(payload) == 0:
        if count or len(payload):
            raise MessageError(f"Elias-Fano-coded indices: {reasons.HEADER if count else reasons.TRAILING}")
        return
    width = int(payload[0])
    if width > MOST_LOW_BITS:
        raise MessageError(f"Elias-Fano-coded indices: {reasons.WIDTH}")
    begin = 1 + -(-count * width // 8)
    low = np.unpackbits(payload[1:begin], bitorder="little")
    high = np.unpackbits(payload[begin:], bitorder="little")
    ones = np.flatnonzero(high)[:count]
    if len(low) < count * width or len(ones) < count:
        raise MessageError(f"Elias-Fano-coded indices: {reasons.TRUNCATED}")
    end = int(ones[-1]) + 1
    if low[count * width :].any() or high[end : -(-end // 8) * 8].any():
        raise MessageError(f"Elias-Fano-coded indices: {reasons.PADDING}")
    if len(high) - end >= 8:
        raise MessageError(f"Elias-Fano-coded indices: {reasons.TRAILING}")
    upper = ones - np.arange(count)
    if upper[-1] >= -(-numel // 2**width):
        raise MessageError(f"Elias-Fano-coded indices: {reasons.INDEX}")
    lower = (low[: count * width].reshape(count, width).astype(np.int64) << np.arange(width)).sum(axis=1)
    _take(indices, (upper << width) + lower, numel, "Elias-Fano-coded indices")


def block16_encode(indices: Indices, numel: int, out: Bytes) -> int:
    """Encode strictly increasing indices; returns the bytes written."""
    gaps_of(indices, numel)
    need_room(out, block16_bound(len(indices), numel))
    if len(indices) == 0:
        return 0
    numbers, counts = np.unique(indices // BLOCK16, return_counts=True)
    directory = np.stack([numbers, counts - 1], axis=1).astype("<u2")
    return _write(out, np.array([len(numbers)], dtype="<u4"), directory, (indices % BLOCK16).astype("<u2"))


def block16_decode(payload: Bytes, numel: int, indices: Indices) -> None:
    """Decode exactly ``len(indices)`` indices, or raise MessageError."""
    count = len(indices)
    if count == 0 and len(payload) == 0:
        return
    if count == 0:
        raise MessageError(f"16-bit indices: {reasons.TRAILING}")
    blocks = int(payload[:4].view("<u4")[0]) if len(payload) >= 4 else 0
    begin = 4 + 4 * blocks
    if len(payload) < begin:
        raise MessageError(f"16-bit indices: {reasons.HEADER}")
    if len(payload) != begin + 2 * count:
        raise MessageError(
            f"16-bit indices: {reasons.TRUNCATED if len(payload) < begin + 2 * count else reasons.TRAILING}"
        )
    numbers, counts = payload[4:begin].copy().view("<u2").reshape(blocks, 2).astype(np.int64).T
    if np.any(np.diff(numbers) <= 0) or (counts + 1).sum() != count:
        raise MessageError(f"16-bit indices: {reasons.DIRECTORY}")
    offsets = payload[begin:].copy().view("<u2")
    _take(indices, np.repeat(numbers, counts + 1) * BLOCK16 + offsets, numel, "16-bit indices")


def block16_size(indices: Indices) -> int:
    """Return the bytes that ``block16_encode`` would write."""
    return 4 + 4 * len(np.unique(indices // BLOCK16)) + 2 * len(indices) if len(indices) else 0


def _take(indices: Indices, decoded: NDArray[np.int64], numel: int, code: str) -> None:
    if np.any(np.diff(decoded) <= 0):
        raise MessageError(f"{code}: {reasons.ORDER}")
    if decoded[-1] >= numel:
        raise MessageError(f"{code}: {reasons.INDEX}")
    indices[:] = decoded
