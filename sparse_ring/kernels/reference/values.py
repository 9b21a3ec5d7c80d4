"""The value codes in NumPy: written for reading; the format is specified in ``base.py``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sparse_ring.errors import MessageError
from sparse_ring.kernels import reasons
from sparse_ring.kernels.base import Bytes, Floats, Halves, level_table, levels_size

LARGEST_FLOAT = np.finfo(np.float32).max
LARGEST_BFLOAT16 = 0x7F7F


def sum_magnitudes(values: Floats | NDArray[np.float64]) -> float:
    """Return the float64 sum of magnitudes in the fixed order."""
    padded = np.zeros(-(-len(values) // 8) * 8, dtype=np.float64)
    padded[: len(values)] = np.abs(values)
    a = np.zeros(8, dtype=np.float64)
    for row in padded.reshape(-1, 8):
        a += row
    return float(((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7])))


def bfloat16_encode(values: Floats, out: Halves, decoded: Floats) -> float:
    """Encode as bfloat16 that stays finite; returns the scale."""
    bits = values.view(np.uint32)
    magnitude = (bits & 0x7FFFFFFF).astype(np.uint64)
    rounded = np.minimum((magnitude + 0x7FFF + (magnitude >> 16 & 1)) >> 16, LARGEST_BFLOAT16)
    out[:] = bits >> 16 & 0x8000 | rounded.astype(np.uint32)
    decoded.view(np.uint32)[:] = out.astype(np.uint32) << 16
    return 1.0


def bfloat16_decode(payload: Halves, values: Floats) -> None:
    """Decode, distrusting the payload."""
    if len(payload) != len(values):
        raise MessageError(f"bfloat16 values: {reasons.LENGTH} ({len(payload)} halves for {len(values)})")
    if np.any((payload & 0x7FFF) > LARGEST_BFLOAT16):
        raise MessageError(f"bfloat16 values: {reasons.NOT_FINITE}")
    values.view(np.uint32)[:] = payload.astype(np.uint32) << 16


def _scale(values: Floats, low: np.float32, high: np.float32, bits: int) -> np.float32:
    mean = np.float32(max(0.0, sum_magnitudes(values) / len(values) - float(low)))
    scale: np.float32 = high - low if bits == 8 else min(mean, (LARGEST_FLOAT - low) / np.float32(8))
    return scale


def _nearest(excess: Floats, bits: int) -> NDArray[np.uint8]:
    table = level_table(bits)
    midpoints = (table[:-1] + table[1:]) / np.float32(2)
    quadratic = np.minimum(np.sqrt(excess) * np.float32(128), 127)
    levels: NDArray[np.uint8] = (quadratic if bits == 8 else np.searchsorted(midpoints, excess, side="right")).astype(
        np.uint8
    )
    return levels


@np.errstate(all="ignore")
def levels_encode(values: Floats, bits: int, out: Bytes, decoded: Floats) -> float:
    """Encode as levels of the excess over the smallest magnitude; returns the scale."""
    if len(values) == 0:
        return 0.0
    magnitudes, negative = np.abs(values), np.signbit(values)
    low = magnitudes.min()
    scale = _scale(values, low, magnitudes.max(), bits)
    levels = _nearest((magnitudes - low) / (scale if scale > 0 else np.float32(1)), bits)
    codes = levels | negative.astype(np.uint8) << np.uint8(bits - 1)
    stream = (codes[:, np.newaxis] >> np.arange(bits, dtype=np.uint8) & 1).reshape(-1)
    out[:4] = np.array([low], dtype="<f4").view(np.uint8)
    out[4:] = np.packbits(stream, bitorder="little")
    decoded[:] = _decoded(codes, bits, low, scale)
    return float(scale)


@np.errstate(all="ignore")
def levels_decode(payload: Bytes, bits: int, scale: float, values: Floats) -> None:
    """Decode levels, distrusting payload and scale."""
    count = len(values)
    if len(payload) != levels_size(count, bits):
        raise MessageError(f"int{bits} values: {reasons.LENGTH} ({len(payload)} bytes for {count})")
    low = payload[:4].copy().view("<f4")[0] if count else np.float32(0)
    factor = np.float32(scale)
    if (
        np.signbit(low)
        or np.signbit(factor)
        or not np.isfinite(factor)
        or not np.isfinite(low + factor * level_table(bits)[-1])
    ):
        raise MessageError(f"int{bits} values: {reasons.LEVELS}")
    stream = np.unpackbits(payload[4:], bitorder="little")
    if stream[count * bits :].any():
        raise MessageError(f"int{bits} values: {reasons.PADDING}")
    codes = (stream[: count * bits].reshape(count, bits) << np.arange(bits, dtype=np.uint8)).sum(axis=1, dtype=np.uint8)
    values[:] = _decoded(codes, bits, low, factor)


def _decoded(codes: NDArray[np.uint8], bits: int, low: np.float32, scale: np.float32) -> Floats:
    magnitudes: Floats = low + scale * level_table(bits)[codes & (2 ** (bits - 1) - 1)]
    return np.where(codes >> (bits - 1), -magnitudes, magnitudes)
