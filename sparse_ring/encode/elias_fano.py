"""Elias-Fano code of the positions (Elias, J. ACM 1974; Fano 1971): low bits as they are, high bits in unary."""

from __future__ import annotations

from sparse_ring.encode.base import Bytes, IndexCode, Indices
from sparse_ring.kernels.base import Kernels, elias_fano_bound, elias_fano_size


class EliasFano(IndexCode):
    """About half a bit above the entropy for positions spread evenly, never more than 2 + log2(numel / count) bits."""

    identifier = 4
    name = "elias_fano"

    def bound(self, count: int, numel: int) -> int:
        """See :meth:`IndexCode.bound`."""
        return elias_fano_bound(count, numel)

    def size(self, indices: Indices, numel: int, kernels: Kernels) -> int:
        """See :meth:`IndexCode.size`."""
        return elias_fano_size(len(indices), numel, int(indices[-1]) if len(indices) else 0)

    def encode(self, indices: Indices, numel: int, out: Bytes, kernels: Kernels) -> int:
        """See :meth:`IndexCode.encode`."""
        return kernels.elias_fano_encode(indices, numel, out)

    def decode(self, payload: Bytes, numel: int, indices: Indices, kernels: Kernels) -> None:
        """See :meth:`IndexCode.decode`."""
        kernels.elias_fano_decode(payload, numel, indices)
