"""Golomb code of the gaps between positions (Golomb, IEEE Trans. Inf. Theory 1966)."""

from __future__ import annotations

from sparse_ring.encode.base import Bytes, IndexCode, Indices
from sparse_ring.kernels.base import Kernels, golomb_bound


class Golomb(IndexCode):
    """Within about 0.75 % of the entropy for positions spread evenly; blocks of 4,096 elements can be decoded apart."""

    identifier = 1
    name = "golomb"

    def bound(self, count: int, numel: int) -> int:
        """See :meth:`IndexCode.bound`."""
        return golomb_bound(count, numel)

    def size(self, indices: Indices, numel: int, kernels: Kernels) -> int:
        """See :meth:`IndexCode.size`."""
        return kernels.golomb_size(indices, numel)

    def encode(self, indices: Indices, numel: int, out: Bytes, kernels: Kernels) -> int:
        """See :meth:`IndexCode.encode`."""
        return kernels.golomb_encode(indices, numel, out)

    def decode(self, payload: Bytes, numel: int, indices: Indices, kernels: Kernels) -> None:
        """See :meth:`IndexCode.decode`."""
        kernels.golomb_decode(payload, numel, indices)
