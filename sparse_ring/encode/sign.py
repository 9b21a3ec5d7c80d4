"""One bit a value: its sign; all magnitudes become their mean (scaled sign, Karimireddy et al., ICML 2019)."""

from __future__ import annotations

from sparse_ring.encode.base import Bytes, Floats, ValueCode
from sparse_ring.kernels.base import Kernels


class Sign(ValueCode):
    """1 bit a value; what the mean magnitude misses stays in the residual."""

    identifier = 2
    name = "sign"

    def size(self, count: int) -> int:
        """Return ``ceil(count / 8)``."""
        return (count + 7) // 8

    def encode(self, values: Floats, out: Bytes, decoded: Floats, kernels: Kernels) -> float:
        """See :meth:`ValueCode.encode`; the scale is the mean magnitude."""
        return kernels.sign_encode(values, out, decoded)

    def decode(self, payload: Bytes, scale: float, values: Floats, kernels: Kernels) -> None:
        """See :meth:`ValueCode.decode`."""
        kernels.sign_decode(payload, scale, values)
