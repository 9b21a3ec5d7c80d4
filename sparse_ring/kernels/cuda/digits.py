"""Digits of whole gradients on the device: every byte is written and read by one thread; see ``quantize.py``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from sparse_ring.kernels.cuda.arithmetic import first_place, stride
from sparse_ring.kernels.cuda.mixed import random_word
from sparse_ring.kernels.cuda.warp import (
    INFINITE,
    MAGNITUDE,
    SIGN,
    THREADS,
    WARPS,
    add,
    bits_of,
    block_number,
    device,
    divide,
    float_of,
    kernel,
    largest_of,
    multiply,
    nearest_whole,
    subtract,
    thread_number,
)
from sparse_ring.kernels.quantize import COLUMNS

NEAREST, STOCHASTIC, ZERO, SIDE, TREE, TABLE = range(6)  # rules of rounding
TRITS, TRIT_BYTES, TRITS_A_BYTE = 3, 243, 5  # base 3, which is told by a digit of 0 bits
PADDING, DIGITS = 1, 2  # what is wrong with a byte
ONE, RANDOM_STEPS = np.float32(1), np.float32(1 << 24)


@device
def _per_byte(bits: Any) -> Any:
    if bits == 0:
        return np.int64(TRITS_A_BYTE)
    return 8 // bits


@device
def _reached(x: Any, bounds: Any) -> Any:
    """How many bounds are at or below x."""
    reached = np.int64(0)
    for bound in range(len(bounds)):
        if x >= bounds[bound]:
            reached += np.int64(1)
    return reached


@device
def _level(x: Any, rule: Any, levels: Any, bounds: Any, factors: Any, offsets: Any, word: Any) -> Any:
    """The level of a magnitude in units of the scale."""
    if rule == TABLE:
        return _reached(x, bounds)
    if rule == TREE:
        decade = _reached(x, bounds)
        return min(nearest_whole(add(multiply(x, factors[decade]), offsets[decade])), (np.int64(2) << decade) - 1)
    y = multiply(x if x < ONE else ONE, np.float32(levels))
    if rule == NEAREST:
        return nearest_whole(y)
    level = np.int64(y)
    if rule == STOCHASTIC:
        part = multiply(subtract(y, np.float32(level)), RANDOM_STEPS)
        if np.float32(word >> 8) < part:
            level += np.int64(1)
    return level


@device
def _digit_of(level: Any, negative: Any, bits: Any) -> Any:
    """A level and its sign in one digit."""
    if bits == 0:
        return level << negative
    return level | negative << (bits - 1)


@device
def _value_of(digit: Any, bits: Any, rule: Any, units: Any, unit: Any, magnitudes: Any) -> Any:
    """What a digit says."""
    if rule == SIDE:
        return float_of(bits_of(units[2 * unit + digit]) | digit << 31)
    if bits == 0:
        level, negative = (digit + 1) >> 1, digit >> 1
    else:
        level, negative = digit & ((np.int64(1) << (bits - 1)) - 1), digit >> (bits - 1)
    return float_of(bits_of(multiply(units[unit], magnitudes[level])) | negative << 31)


@kernel(
    "float32[::1], float32[::1], int64, int64, int64, int64, float32[::1], float32[::1], float32[::1], float32[::1],"
    " int64, int64, int64, uint8[::1], float32[::1]"
)
def write_digits(
    values: Any,
    units: Any,
    block_bits: Any,
    rule: Any,
    bits: Any,
    levels: Any,
    bounds: Any,
    factors: Any,
    offsets: Any,
    magnitudes: Any,
    low: Any,
    high: Any,
    head: Any,
    out: Any,
    decoded: Any,
) -> None:
    """Digits behind ``head`` bytes, and what they say; a unit has 2**``block_bits`` values, a digit ``bits`` bits or base 3."""
    per_byte, base = _per_byte(bits), np.int64(1) << bits if bits > 0 else np.int64(TRITS)
    for byte in range(first_place(), len(out) - head, stride()):
        begin = byte // COLUMNS * COLUMNS * per_byte
        here = min(len(values) - begin, COLUMNS * per_byte)
        columns = (here + per_byte - 1) // per_byte
        packed, weight = np.int64(0), np.int64(1)
        for place in range(byte % COLUMNS, here, columns):
            i = begin + place
            value, unit = bits_of(values[i]), i >> block_bits
            if rule == SIDE:
                digit = np.int64(1) if value > SIGN else np.int64(0)  # -0 is not negative
            else:
                divisor = units[unit] if units[unit] > 0 else ONE
                x = divide(float_of(value & MAGNITUDE), divisor)
                word = random_word(i, low, high) if rule == STOCHASTIC else np.int64(0)
                digit = _digit_of(_level(x, rule, levels, bounds, factors, offsets, word), value >> 31, bits)
            packed += digit * weight
            weight *= base
            decoded[i] = _value_of(digit, bits, rule, units, unit, magnitudes)
        out[head + byte] = packed


@kernel("uint8[::1], int64, float32[::1], int64, int64, int64, float32[::1], float32[::1], int64[::1]")
def read_digits(
    payload: Any,
    head: Any,
    units: Any,
    block_bits: Any,
    rule: Any,
    bits: Any,
    magnitudes: Any,
    values: Any,
    flags: Any,
) -> None:
    """What the digits behind ``head`` bytes say; leave in a block's flag what is wrong with its bytes."""
    shared = cuda.shared.array(THREADS, np.int64)
    of_warps = cuda.shared.array(WARPS, np.int64)
    per_byte, bad = _per_byte(bits), np.int64(0)
    for byte in range(first_place(), len(payload) - head, stride()):
        begin = byte // COLUMNS * COLUMNS * per_byte
        here = min(len(values) - begin, COLUMNS * per_byte)
        columns = (here + per_byte - 1) // per_byte
        rest = np.int64(payload[head + byte])
        if bits == 0 and rest >= TRIT_BYTES:
            bad = np.int64(DIGITS)
        for row in range(per_byte):
            if bits == 0:
                digit, rest = rest % TRITS, rest // TRITS
            else:
                digit, rest = rest & ((np.int64(1) << bits) - 1), rest >> bits
            place = row * columns + byte % COLUMNS
            if place < here:
                i = begin + place
                values[i] = _value_of(digit, bits, rule, units, i >> block_bits, magnitudes)
            elif digit != 0:
                bad = max(bad, np.int64(PADDING))
    bad = largest_of(bad, shared, of_warps)
    if thread_number() == 0:
        flags[block_number()] = bad


@kernel("uint32[::1], uint8[::1]")
def write_words(words: Any, out: Any) -> None:
    """Words in front of everything, a byte a thread."""
    for byte in range(first_place(), 4 * len(words), stride()):
        out[byte] = (np.int64(words[byte >> 2]) >> (8 * (byte & 3))) & 0xFF


@kernel("uint8[::1], float32[::1], int64[::1]")
def read_units(payload: Any, units: Any, flags: Any) -> None:
    """Read scales; leave 1 in a block's flag where one of them is negative, -0 or not finite."""
    shared = cuda.shared.array(THREADS, np.int64)
    of_warps = cuda.shared.array(WARPS, np.int64)
    bad = np.int64(0)
    for unit in range(first_place(), len(units), stride()):
        bits = np.int64(0)
        for place in range(4):
            bits |= np.int64(payload[4 * unit + place]) << (8 * place)
        units[unit] = float_of(bits)
        if bits >= INFINITE:
            bad = np.int64(1)
    bad = largest_of(bad, shared, of_warps)
    if thread_number() == 0:
        flags[block_number()] = bad
