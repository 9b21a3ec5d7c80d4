"""Value codes on the device: float16 and signs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import cuda

from sparse_ring.errors import MessageError
from sparse_ring.kernels import reasons
from sparse_ring.kernels.base import Bytes, Floats, Halves
from sparse_ring.kernels.cpu.values import need
from sparse_ring.kernels.cuda.arithmetic import first_place, rounded, stride
from sparse_ring.kernels.cuda.memory import bring_back, empty, give, launch, on_device, on_host, room_for, strides
from sparse_ring.kernels.cuda.scan import worst_of
from sparse_ring.kernels.cuda.sum import range_of, sum_of_magnitudes
from sparse_ring.kernels.cuda.warp import (
    INFINITE,
    MAGNITUDE,
    SIGN,
    THREADS,
    WARP,
    WARPS,
    ballot,
    bits_of,
    block_count,
    block_number,
    divide,
    float_of_half,
    half_of,
    kernel,
    largest_of,
    multiply,
    thread_number,
)

SIGN_BYTES = 4  # of a warp's votes


@kernel("float32[::1], float32, uint16[::1], float32[::1]")
def write_float16(values: Any, scale: Any, out: Any, decoded: Any) -> None:
    """Halves of value / scale, and what they say."""
    for i in range(first_place(), len(values), stride()):
        half = half_of(divide(values[i], scale))
        out[i] = half
        decoded[i] = multiply(float_of_half(half), scale)


@kernel("uint16[::1], float32, float32[::1], int64[::1]")
def read_float16(payload: Any, scale: Any, values: Any, flags: Any) -> None:
    """Half * scale; leave 1 in a block's flag where that is not finite."""
    shared = cuda.shared.array(THREADS, np.int64)
    of_warps = cuda.shared.array(WARPS, np.int64)
    bad = np.int64(0)
    for i in range(first_place(), len(payload), stride()):
        value = multiply(float_of_half(np.int64(payload[i])), scale)
        values[i] = value
        if bits_of(value) & MAGNITUDE >= INFINITE:
            bad = np.int64(1)
    bad = largest_of(bad, shared, of_warps)
    if thread_number() == 0:
        flags[block_number()] = bad


@kernel("uint32[::1], int64, uint8[::1], uint32[::1]")
def write_signs(values: Any, scale: Any, out: Any, decoded: Any) -> None:
    """A bit a value, 32 to a warp, and +-scale (its bits)."""
    thread, length = thread_number(), len(values)
    for first in range(block_number() * THREADS, length, block_count() * THREADS):
        i = first + thread
        sign = np.int64(values[i]) & SIGN if i < length else np.int64(0)
        if i < length:
            decoded[i] = scale | sign
        votes = ballot(sign != 0)
        byte = (first + thread // WARP * WARP) // 8 + thread % WARP
        if thread % WARP < SIGN_BYTES and byte < len(out):
            out[byte] = (votes >> (8 * (thread % WARP))) & 0xFF


@kernel("uint8[::1], int64, uint32[::1]")
def read_signs(payload: Any, scale: Any, values: Any) -> None:
    """+-scale, as bits: the scale's own sign is turned where a bit is set."""
    for i in range(first_place(), len(values), stride()):
        bit = (np.int64(payload[i >> 3]) >> (i & 7)) & 1
        values[i] = scale ^ (bit << 31)


class CudaValues:
    """See :class:`sparse_ring.kernels.base.Kernels`."""

    def float16_encode(self, values: Floats, out: Halves, decoded: Floats) -> float:
        """Encode as halves of a power of two; returns the scale."""
        length = len(values)
        need("out", len(out), length)
        need("decoded", len(decoded), length)
        if length == 0:
            return 1.0
        on_values = on_device("values", values, np.float32)
        largest = float(range_of(on_values)[1])
        scale = np.float32(2.0 ** max(math.frexp(largest)[1] - 1, -126) if largest else 1.0)
        halves, seen = room_for("out", out, np.uint16), room_for("decoded", decoded, np.float32)
        launch(write_float16, strides(length), on_values, scale, halves, seen)
        bring_back(halves, out)
        bring_back(seen, decoded)
        return float(scale)

    def float16_decode(self, payload: Halves, scale: float, values: Floats) -> None:
        """Decode halves, distrusting payload and scale."""
        length, factor, blocks = len(values), rounded(scale), strides(len(values))
        need_payload("float16", "halves", len(payload), length, length)
        read, flags = empty(length, np.float32), empty(blocks, np.int64)
        launch(read_float16, blocks, on_device("payload", payload, np.uint16), factor, read, flags)
        if not np.isfinite(factor) or (blocks and worst_of(flags)):
            raise MessageError(f"float16 values: {reasons.NOT_FINITE}")
        give("values", read, values)

    def sign_encode(self, values: Floats, out: Bytes, decoded: Floats) -> float:
        """Encode as sign bits; returns the mean magnitude."""
        length = len(values)
        need("out", len(out), (length + 7) // 8)
        need("decoded", len(decoded), length)
        if length == 0:
            return 0.0
        on_values = on_device("values", values, np.float32)
        scale = rounded(sum_of_magnitudes(on_values) / length)
        bits, seen = room_for("out", out, np.uint8), room_for("decoded", decoded, np.float32)
        launch(
            write_signs,
            strides(length),
            on_values.view(np.uint32),
            int(scale.view(np.uint32)),
            bits,
            seen.view(np.uint32),
        )
        bring_back(bits, out)
        bring_back(seen, decoded)
        return float(scale)

    def sign_decode(self, payload: Bytes, scale: float, values: Floats) -> None:
        """Decode sign bits, distrusting payload and scale."""
        length, factor = len(values), rounded(scale)
        need_payload("sign", "bytes", len(payload), (length + 7) // 8, length)
        if not np.isfinite(factor):
            raise MessageError(f"sign values: {reasons.NOT_FINITE}")
        if padding_is_set(payload, length):
            raise MessageError(f"sign values: {reasons.PADDING}")
        read = empty(length, np.float32)
        launch(
            read_signs,
            strides(length),
            on_device("payload", payload, np.uint8),
            int(factor.view(np.uint32)),
            read.view(np.uint32),
        )
        give("values", read, values)


def need_payload(code: str, parts: str, length: int, expected: int, values: int) -> None:
    """Raise MessageError where a payload has another length than its number of values says."""
    if length != expected:
        raise MessageError(f"{code} values: {reasons.LENGTH} ({length} {parts} for {values})")


def padding_is_set(payload: Bytes, bits: int) -> bool:
    """Return whether the last byte of a payload that holds so many bits has one behind them set."""
    return bits % 8 != 0 and bool(int(on_host(payload[-1:])[0]) >> bits % 8)
