"""bfloat16 on the device: what a wire narrows, and the value code that stays finite."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from sparse_ring.errors import MessageError
from sparse_ring.kernels import reasons
from sparse_ring.kernels.base import Floats, Halves
from sparse_ring.kernels.cpu.values import need
from sparse_ring.kernels.cuda.arithmetic import first_place, stride
from sparse_ring.kernels.cuda.memory import bring_back, empty, give, launch, on_device, room_for, strides
from sparse_ring.kernels.cuda.scan import worst_of
from sparse_ring.kernels.cuda.values import need_payload
from sparse_ring.kernels.cuda.warp import (
    INFINITE,
    MAGNITUDE,
    THREADS,
    WARPS,
    block_number,
    kernel,
    largest_of,
    thread_number,
)

LARGEST_BFLOAT16 = 0x7F7F


@kernel("uint32[::1], uint16[::1]")
def narrow(x: Any, out: Any) -> None:
    """float32 bits to bfloat16 bits, nearest even; NaN stays NaN."""
    for i in range(first_place(), len(x), stride()):
        bits = np.int64(x[i])
        if bits & MAGNITUDE > INFINITE:
            out[i] = (bits >> 16) & 0x8000 | 0x7FC0
        else:
            out[i] = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16


@kernel("uint16[::1], uint32[::1]")
def widen(x: Any, out: Any) -> None:
    """bfloat16 bits to float32 bits."""
    for i in range(first_place(), len(x), stride()):
        out[i] = np.int64(x[i]) << 16


@kernel("uint32[::1], uint16[::1], uint32[::1]")
def write_bfloat16(values: Any, out: Any, decoded: Any) -> None:
    """The upper halves, nearest even, at most the largest finite one."""
    for i in range(first_place(), len(values), stride()):
        bits = np.int64(values[i])
        magnitude = bits & MAGNITUDE
        half = min((magnitude + 0x7FFF + ((magnitude >> 16) & 1)) >> 16, np.int64(LARGEST_BFLOAT16))
        half |= (bits >> 16) & 0x8000
        out[i] = half
        decoded[i] = half << 16


@kernel("uint16[::1], uint32[::1], int64[::1]")
def read_bfloat16(payload: Any, values: Any, flags: Any) -> None:
    """Widen; leave 1 in a block's flag where a value is not finite."""
    shared = cuda.shared.array(THREADS, np.int64)
    of_warps = cuda.shared.array(WARPS, np.int64)
    bad = np.int64(0)
    for i in range(first_place(), len(payload), stride()):
        half = np.int64(payload[i])
        values[i] = half << 16
        if half & 0x7FFF > LARGEST_BFLOAT16:
            bad = np.int64(1)
    bad = largest_of(bad, shared, of_warps)
    if thread_number() == 0:
        flags[block_number()] = bad


class CudaBFloat16:
    """See :class:`sparse_ring.kernels.base.Kernels`."""

    def bfloat16_encode(self, values: Floats, out: Halves, decoded: Floats) -> float:
        """Encode as bfloat16; returns the scale."""
        length = len(values)
        need("out", len(out), length)
        need("decoded", len(decoded), length)
        bits = on_device("values", values, np.float32).view(np.uint32)
        halves, seen = room_for("out", out, np.uint16), room_for("decoded", decoded, np.float32)
        launch(write_bfloat16, strides(length), bits, halves, seen.view(np.uint32))
        bring_back(halves, out)
        bring_back(seen, decoded)
        return 1.0

    def bfloat16_decode(self, payload: Halves, values: Floats) -> None:
        """Decode bfloat16, distrusting the payload."""
        length, blocks = len(values), strides(len(values))
        need_payload("bfloat16", "halves", len(payload), length, length)
        read, flags = empty(length, np.float32), empty(blocks, np.int64)
        launch(read_bfloat16, blocks, on_device("payload", payload, np.uint16), read.view(np.uint32), flags)
        if blocks and worst_of(flags):
            raise MessageError(f"bfloat16 values: {reasons.NOT_FINITE}")
        give("values", read, values)

    def float32_to_bfloat16(self, x: Floats, out: Halves) -> None:
        """Round to bfloat16."""
        need("out", len(out), len(x))
        bits, o = on_device("x", x, np.float32).view(np.uint32), room_for("out", out, np.uint16)
        launch(narrow, strides(len(x)), bits, o)
        bring_back(o, out)

    def bfloat16_to_float32(self, x: Halves, out: Floats) -> None:
        """Widen bfloat16."""
        need("out", len(out), len(x))
        halves, o = on_device("x", x, np.uint16), room_for("out", out, np.float32)
        launch(widen, strides(len(x)), halves, o.view(np.uint32))
        bring_back(o, out)
