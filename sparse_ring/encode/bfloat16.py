"""Values as the upper half of their float32: fewer digits than float16, no scale."""

from __future__ import annotations

import numpy as np

from sparse_ring.encode.base import Bytes, Floats, ValueCode
from sparse_ring.kernels.base import Kernels


class BFloat16(ValueCode):
    """16 bits a value; relative error up to 2**-8, over all magnitudes that float32 has."""

    identifier = 3
    name = "bfloat16"

    def size(self, count: int) -> int:
        """Return ``2 * count``."""
        return 2 * count

    def encode(self, values: Floats, out: Bytes, decoded: Floats, kernels: Kernels) -> float:
        """See :meth:`ValueCode.encode`; what would round to infinity becomes the largest finite number."""
        return kernels.bfloat16_encode(values, out.view(np.uint16), decoded)

    def decode(self, payload: Bytes, scale: float, values: Floats, kernels: Kernels) -> None:
        """See :meth:`ValueCode.decode`; the scale is not used."""
        kernels.bfloat16_decode(payload.view(np.uint16), values)
