"""Half precision on the device: what a wire narrows and widens."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparse_ring.kernels.base import Floats, Halves
from sparse_ring.kernels.cpu.values import need
from sparse_ring.kernels.cuda.arithmetic import first_place, stride
from sparse_ring.kernels.cuda.memory import bring_back, launch, on_device, room_for, strides
from sparse_ring.kernels.cuda.warp import INFINITE, MAGNITUDE, float_of_half, half_of, kernel

# From here on the nearest half is infinite.
OVERFLOW = 0x477FF000


@kernel("float32[::1], uint32[::1], uint16[::1]")
def narrow_halves(x: Any, bits_of_x: Any, out: Any) -> None:
    """float32 to half, nearest even; ``bits_of_x`` are the bits of ``x``. NaN becomes quiet and keeps its upper bits."""
    for i in range(first_place(), len(x), stride()):
        bits = np.int64(bits_of_x[i])
        magnitude, sign = bits & MAGNITUDE, (bits >> 16) & 0x8000
        if magnitude > INFINITE:
            out[i] = sign | 0x7E00 | (magnitude >> 13) & 0x3FF
        elif magnitude >= OVERFLOW:
            out[i] = sign | 0x7C00
        else:
            out[i] = half_of(x[i])


@kernel("uint16[::1], float32[::1], uint32[::1]")
def widen_halves(x: Any, out: Any, bits_of_out: Any) -> None:
    """Half to float32; ``bits_of_out`` are the bits of ``out``. NaN becomes quiet."""
    for i in range(first_place(), len(x), stride()):
        half = np.int64(x[i])
        if half & 0x7FFF > 0x7C00:
            bits_of_out[i] = (half & 0x8000) << 16 | 0x7FC00000 | (half & 0x3FF) << 13
        else:
            out[i] = float_of_half(half)


class CudaHalves:
    """See :class:`sparse_ring.kernels.base.Kernels`."""

    def float32_to_float16(self, x: Floats, out: Halves) -> None:
        """Round to half precision."""
        need("out", len(out), len(x))
        values, o = on_device("x", x, np.float32), room_for("out", out, np.uint16)
        launch(narrow_halves, strides(len(x)), values, values.view(np.uint32), o)
        bring_back(o, out)

    def float16_to_float32(self, x: Halves, out: Floats) -> None:
        """Widen half precision."""
        need("out", len(out), len(x))
        halves, o = on_device("x", x, np.uint16), room_for("out", out, np.float32)
        launch(widen_halves, strides(len(x)), halves, o, o.view(np.uint32))
        bring_back(o, out)
