"""No values at all: a frame of positions, whose values travel another way."""

from __future__ import annotations

from sparse_ring.encode.base import Bytes, Floats, ValueCode
from sparse_ring.kernels.base import Kernels


class Nothing(ValueCode):
    """0 bits a value; all of them are decoded as zero."""

    identifier = 32
    name = "nothing"

    def size(self, count: int) -> int:
        """Return 0."""
        return 0

    def encode(self, values: Floats, out: Bytes, decoded: Floats, kernels: Kernels) -> float:
        """See :meth:`ValueCode.encode`."""
        decoded.fill(0.0)
        return 1.0

    def decode(self, payload: Bytes, scale: float, values: Floats, kernels: Kernels) -> None:
        """See :meth:`ValueCode.decode`."""
        values.fill(0.0)
