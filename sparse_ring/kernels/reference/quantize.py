"""The codes of whole gradients in NumPy: written for reading; the format is specified in ``quantize.py``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sparse_ring.errors import MessageError
from sparse_ring.kernels import reasons
from sparse_ring.kernels.base import Bytes, Floats
from sparse_ring.kernels.quantize import (
    BLOCK8,
    COLUMNS,
    FOUR4,
    FOUR_TABLES,
    ONE1,
    TREE8,
    Scheme,
    four_unit,
    level_magnitudes,
    random_words,
    tree_level,
)
from sparse_ring.kernels.reference.values import LARGEST_FLOAT, sum_magnitudes

Digits = NDArray[np.uint8]


@np.errstate(all="ignore")
def quantize_encode(values: Floats, scheme: Scheme, scale: float, key: int, out: Bytes, decoded: Floats) -> float:
    """Encode; returns the frame's scale."""
    count, table = len(values), 0
    head = scheme.head_bytes(count)
    given = np.float32(scale)
    if count and scheme.scales:
        units = np.array([_unit(block, scheme) for block in _blocks(values, scheme)], dtype="<f4")
        out[: units.nbytes] = units.reshape(-1).view(np.uint8)
        if scheme is FOUR4:
            table = _four(values)[0]
            out[4:8] = np.array([table], dtype="<u4").view(np.uint8)
    else:
        units = np.full((1, max(scheme.scales, 1)), given)
    digits = _digits(values, scheme, _spread(units, scheme, count), table, key)
    out[head:] = _pack(digits, scheme)
    decoded[:] = _values(digits, scheme, _spread(units, scheme, count), table)
    return 1.0 if scheme.scales else float(given)


@np.errstate(all="ignore")
def quantize_decode(payload: Bytes, scheme: Scheme, scale: float, values: Floats) -> None:
    """Decode, distrusting payload and scale."""
    count, table = len(values), 0
    if len(payload) != scheme.size(count):
        raise MessageError(f"{scheme.name} values: {reasons.LENGTH} ({len(payload)} bytes for {count})")
    head = scheme.head_bytes(count)
    if scheme.scales:
        units = payload[: 4 * scheme.scales * scheme.blocks(count)].copy().view("<f4").reshape(-1, scheme.scales)
    else:
        units = np.full((1, 1), np.float32(scale))
    if np.signbit(units).any() or not np.isfinite(units).all():
        raise MessageError(f"{scheme.name} values: {reasons.LEVELS}")
    if scheme.words and count:
        table = int(payload[head - 4 : head].copy().view("<u4")[0])
        if table >= len(FOUR_TABLES):
            raise MessageError(f"{scheme.name} values: {reasons.TABLE}")
    digits = _unpack(payload[head:], scheme, count)
    values[:] = _values(digits, scheme, _spread(units, scheme, count), table)


def _blocks(values: Floats, scheme: Scheme) -> list[Floats]:
    step = scheme.block or len(values)
    return [values[start : start + step] for start in range(0, len(values), step)]


def _unit(block: Floats, scheme: Scheme) -> list[np.float32]:
    """The scales of one block."""
    if scheme is FOUR4:
        return [_four(block)[1]]
    if scheme in (BLOCK8, TREE8):
        return [np.abs(block).max()]
    if scheme is ONE1:
        negative = block < 0
        return [
            _mean(block[~negative], np.where(negative, 0, block)),
            _mean(block[negative], np.where(negative, block, 0)),
        ]
    return [np.float32(min(np.sqrt(_sum_squares(block)), float(LARGEST_FLOAT)))]


def _mean(side: Floats, others_zero: Floats) -> np.float32:
    mean: np.float32 = np.float32(sum_magnitudes(others_zero) / len(side) if len(side) else 0.0)
    return mean


def _four(values: Floats) -> tuple[int, np.float32]:
    magnitudes = np.abs(values)
    return four_unit(
        int(np.count_nonzero(magnitudes)), sum_magnitudes(values), _sum_squares(values), magnitudes.max(initial=0)
    )


def _sum_squares(values: Floats) -> float:
    return sum_magnitudes(np.square(values.astype(np.float64)))


def _spread(units: Floats, scheme: Scheme, count: int) -> Floats:
    """The unit of every value, ``float32[count, max(scales, 1)]``."""
    spread: Floats = np.repeat(units, scheme.block or count, axis=0)[:count]
    return spread


def _digits(values: Floats, scheme: Scheme, units: Floats, table: int, key: int) -> Digits:
    if scheme.rounding == "side":
        return (values < 0).astype(np.uint8)
    scale = units[:, 0]
    divisor = np.where(scale > 0, scale, np.float32(1))
    x: Floats = np.divide(np.abs(values), divisor, dtype=np.float32)
    level = _levels(x, scheme, table, key)
    negative = np.signbit(values).astype(np.uint8)
    digits: Digits = level << negative if scheme.base == 3 else level | negative * np.uint8(scheme.base // 2)
    return digits


def _levels(x: Floats, scheme: Scheme, table: int, key: int) -> Digits:
    if scheme is TREE8:
        return tree_level(x)
    if scheme is FOUR4:
        table_magnitudes = level_magnitudes(scheme, table)
        midpoints = (table_magnitudes[:-1] + table_magnitudes[1:]) / np.float32(2)
        return np.searchsorted(midpoints, x, side="right").astype(np.uint8)
    y: Floats = np.minimum(x, np.float32(1)) * np.float32(scheme.levels)
    whole: Floats = np.rint(y) if scheme.rounding == "nearest" else np.trunc(y)
    level: Digits = whole.astype(np.uint8)
    if scheme.rounding == "stochastic":
        drawn = (random_words(len(x), key) >> np.uint32(8)).astype(np.float32)
        level += drawn < (y - whole) * np.float32(2**24)
    return level


def _values(digits: Digits, scheme: Scheme, units: Floats, table: int) -> Floats:
    if scheme.rounding == "side":
        return np.where(digits, -units[:, 1], units[:, 0])
    half = scheme.base // 2
    level = (digits + 1) >> 1 if scheme.base == 3 else digits & np.uint8(half - 1)
    negative = digits > 1 if scheme.base == 3 else digits >= half
    magnitude: Floats = units[:, 0] * level_magnitudes(scheme, table)[level]
    return np.where(negative, -magnitude, magnitude)


def _pack(digits: Digits, scheme: Scheme) -> Bytes:
    parts = []
    weights = scheme.base ** np.arange(scheme.per_byte)
    for start in range(0, len(digits), COLUMNS * scheme.per_byte):
        chunk = digits[start : start + COLUMNS * scheme.per_byte]
        columns = -(-len(chunk) // scheme.per_byte)
        rows = np.zeros(scheme.per_byte * columns, dtype=np.int64)
        rows[: len(chunk)] = chunk
        parts.append((rows.reshape(-1, columns) * weights[:, np.newaxis]).sum(axis=0).astype(np.uint8))
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint8)


def _unpack(packed: Bytes, scheme: Scheme, count: int) -> Digits:
    if scheme.base == 3 and np.any(packed >= 3**5):
        raise MessageError(f"{scheme.name} values: {reasons.DIGITS}")
    digits = np.zeros(count, dtype=np.uint8)
    weights = scheme.base ** np.arange(scheme.per_byte)
    for start in range(0, count, COLUMNS * scheme.per_byte):
        chunk = digits[start : start + COLUMNS * scheme.per_byte]
        columns = -(-len(chunk) // scheme.per_byte)
        first = start // scheme.per_byte
        rows = packed[first : first + columns].astype(np.int64) // weights[:, np.newaxis] % scheme.base
        if rows.reshape(-1)[len(chunk) :].any():
            raise MessageError(f"{scheme.name} values: {reasons.PADDING}")
        chunk[:] = rows.reshape(-1)[: len(chunk)]
    return digits
