"""Values as IEEE half precision after division by a power of two, so that nothing overflows or vanishes."""

from __future__ import annotations

import numpy as np

from sparse_ring.encode.base import Bytes, Floats, ValueCode
from sparse_ring.kernels.base import Kernels


class Float16(ValueCode):
    """16 bits a value; relative error up to 2**-11 for magnitudes down to 2**-14 of the largest."""

    identifier = 1
    name = "float16"

    def size(self, count: int) -> int:
        """Return ``2 * count``."""
        return 2 * count

    def encode(self, values: Floats, out: Bytes, decoded: Floats, kernels: Kernels) -> float:
        """See :meth:`ValueCode.encode`; the scale is the power of two at or below the largest magnitude."""
        return kernels.float16_encode(values, out.view(np.uint16), decoded)

    def decode(self, payload: Bytes, scale: float, values: Floats, kernels: Kernels) -> None:
        """See :meth:`ValueCode.decode`."""
        kernels.float16_decode(payload.view(np.uint16), scale, values)
