"""Values as they are."""

from __future__ import annotations

import numpy as np

from sparse_ring.encode.base import Bytes, Floats, ValueCode
from sparse_ring.errors import MessageError
from sparse_ring.kernels.base import Kernels


class Float32(ValueCode):
    """32 bits a value, exact."""

    identifier = 0
    name = "float32"

    def size(self, count: int) -> int:
        """Return ``4 * count``."""
        return 4 * count

    def encode(self, values: Floats, out: Bytes, decoded: Floats, kernels: Kernels) -> float:
        """See :meth:`ValueCode.encode`; ``decoded`` equals ``values``."""
        out.view(np.float32)[:] = values
        decoded[:] = values
        return 1.0

    def decode(self, payload: Bytes, scale: float, values: Floats, kernels: Kernels) -> None:
        """See :meth:`ValueCode.decode`."""
        values[:] = payload.view(np.float32)
        if not kernels.all_finite(values):
            raise MessageError("a value is not finite")
