"""Values as levels on the device: eight values, whose codes fill whole bytes, are one thread's."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparse_ring.errors import MessageError
from sparse_ring.kernels import reasons
from sparse_ring.kernels.base import Bytes, Floats, level_table, levels_size
from sparse_ring.kernels.cpu.values import LEVEL_BITS, need
from sparse_ring.kernels.cuda.arithmetic import first_place, rounded, stride
from sparse_ring.kernels.cuda.memory import bring_back, empty, give, launch, on_device, on_host, room_for, strides
from sparse_ring.kernels.cuda.sum import range_of, sum_of_magnitudes
from sparse_ring.kernels.cuda.values import need_payload, padding_is_set
from sparse_ring.kernels.cuda.warp import (
    MAGNITUDE,
    SIGN,
    add,
    bits_of,
    device,
    divide,
    float_of,
    kernel,
    multiply,
    square_root,
    subtract,
)

GROUP = 8  # values whose codes take ``bits`` bytes
LOW_BYTES = 4
LARGEST_FLOAT = np.finfo(np.float32).max
QUADRATIC_LEVELS = 128
ROOT_STEPS = np.float32(128)


@device
def _level(excess: Any, bounds: Any) -> Any:
    """The level of an excess: how many bounds are at or below it; without bounds, its square root in steps of 1/128."""
    if len(bounds) == 0:
        return min(np.int64(multiply(square_root(excess), ROOT_STEPS)), np.int64(QUADRATIC_LEVELS - 1))
    level = np.int64(0)
    for bound in range(len(bounds)):
        if excess >= bounds[bound]:
            level += np.int64(1)
    return level


@kernel("float32[::1], int64, float32, float32, float32, float32[::1], float32[::1], uint8[::1], float32[::1]")
def write_levels(
    values: Any, bits: Any, low: Any, scale: Any, divisor: Any, table: Any, bounds: Any, out: Any, decoded: Any
) -> None:
    """Codes behind the 4 bytes of ``low``, which the first thread writes, and what they say."""
    length = len(values)
    for group in range(first_place(), (length + GROUP - 1) // GROUP, stride()):
        byte, pending, filled = LOW_BYTES + group * bits, np.int64(0), np.int64(0)
        if group == 0:
            for place in range(LOW_BYTES):
                out[place] = (bits_of(low) >> (8 * place)) & 0xFF
        for i in range(group * GROUP, min((group + 1) * GROUP, length)):
            value = bits_of(values[i])
            level = _level(divide(subtract(float_of(value & MAGNITUDE), low), divisor), bounds)
            decoded[i] = float_of(bits_of(add(low, multiply(scale, table[level]))) | (value & SIGN))
            pending |= (level | (value >> 31) << (bits - 1)) << filled
            filled += bits
            while filled >= 8:
                out[byte] = pending & 0xFF
                pending >>= 8
                filled -= 8
                byte += 1
        if filled > 0:
            out[byte] = pending


@kernel("uint8[::1], int64, float32, float32, float32[::1], float32[::1]")
def read_levels(payload: Any, bits: Any, low: Any, scale: Any, table: Any, values: Any) -> None:
    """low + scale * the level's, with the code's sign."""
    length = len(values)
    for group in range(first_place(), (length + GROUP - 1) // GROUP, stride()):
        byte, pending, filled = LOW_BYTES + group * bits, np.int64(0), np.int64(0)
        for i in range(group * GROUP, min((group + 1) * GROUP, length)):
            while filled < bits:
                pending |= np.int64(payload[byte]) << filled
                filled += 8
                byte += 1
            level, sign = pending & ((1 << (bits - 1)) - 1), (pending >> (bits - 1)) & 1
            values[i] = float_of(bits_of(add(low, multiply(scale, table[level]))) | sign << 31)
            pending >>= bits
            filled -= bits


class CudaLevels:
    """See :class:`sparse_ring.kernels.base.Kernels`."""

    def levels_encode(self, values: Floats, bits: int, out: Bytes, decoded: Floats) -> float:
        """Encode as levels of the excess; returns the scale."""
        length = len(values)
        _need_bits(bits)
        need("out", len(out), levels_size(length, bits))
        need("decoded", len(decoded), length)
        if length == 0:
            return 0.0
        on_values = on_device("values", values, np.float32)
        low, high = range_of(on_values)
        scale = _scale(on_values, low, high, bits)
        codes, seen = room_for("out", out, np.uint8), room_for("decoded", decoded, np.float32)
        table = level_table(bits)
        bounds = (table[:-1] + table[1:]) / np.float32(2) if bits != 8 else table[:0]
        launch(
            write_levels,
            strides(-(-length // GROUP)),
            on_values,
            bits,
            low,
            scale,
            scale if scale > 0 else np.float32(1),
            on_device("levels", table, np.float32),
            on_device("bounds", bounds, np.float32),
            codes,
            seen,
        )
        bring_back(codes, out)
        bring_back(seen, decoded)
        return float(scale)

    def levels_decode(self, payload: Bytes, bits: int, scale: float, values: Floats) -> None:
        """Decode levels, distrusting payload and scale."""
        length, factor, table = len(values), rounded(scale), level_table(bits) if bits in LEVEL_BITS else None
        _need_bits(bits)
        need_payload(f"int{bits}", "bytes", len(payload), levels_size(length, bits), length)
        low = np.frombuffer(on_host(payload[:LOW_BYTES]).tobytes(), "<f4")[0] if length else np.float32(0)
        if not _levels_fit(low, factor, table):
            raise MessageError(f"int{bits} values: {reasons.LEVELS}")
        if padding_is_set(payload, length * bits):
            raise MessageError(f"int{bits} values: {reasons.PADDING}")
        read = empty(length, np.float32)
        data, levels = on_device("payload", payload, np.uint8), on_device("levels", table, np.float32)
        launch(read_levels, strides(-(-length // GROUP)), data, bits, np.float32(low), factor, levels, read)
        give("values", read, values)


def _need_bits(bits: int) -> None:
    if bits not in LEVEL_BITS:
        raise ValueError(f"bits is {bits}, but must be one of {', '.join(map(str, LEVEL_BITS))}.")


@np.errstate(all="ignore")
def _levels_fit(low: Any, scale: np.float32, table: Any) -> bool:
    negative = bool(np.signbit(low)) or bool(np.signbit(scale))
    return not negative and bool(np.isfinite(scale)) and bool(np.isfinite(low + scale * table[-1]))


@np.errstate(all="ignore")
def _scale(values: Any, low: np.float32, high: np.float32, bits: int) -> np.float32:
    scale: np.float32 = high - low
    if bits != 8:
        mean = np.float32(max(0.0, sum_of_magnitudes(values) / len(values) - float(low)))
        scale = min(mean, (LARGEST_FLOAT - low) / np.float32(8))
    return scale
