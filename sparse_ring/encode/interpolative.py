"""Binary interpolative code of the positions (Moffat and Stuiver, Information Retrieval 2000)."""

from __future__ import annotations

from sparse_ring.encode.base import Bytes, IndexCode, Indices
from sparse_ring.kernels.base import Kernels, interpolative_bound


class Interpolative(IndexCode):
    """Below the entropy of evenly spread positions where they crowd, as those of real gradients do: in rows of live units.

    Each position is a number between two that are known, so nothing but numbers is sent, and crowded ones are small.
    """

    identifier = 6
    name = "interpolative"

    def bound(self, count: int, numel: int) -> int:
        """See :meth:`IndexCode.bound`."""
        return interpolative_bound(count, numel)

    def size(self, indices: Indices, numel: int, kernels: Kernels) -> int:
        """See :meth:`IndexCode.size`."""
        return kernels.interpolative_size(indices, numel)

    def encode(self, indices: Indices, numel: int, out: Bytes, kernels: Kernels) -> int:
        """See :meth:`IndexCode.encode`."""
        return kernels.interpolative_encode(indices, numel, out)

    def decode(self, payload: Bytes, numel: int, indices: Indices, kernels: Kernels) -> None:
        """See :meth:`IndexCode.decode`."""
        kernels.interpolative_decode(payload, numel, indices)
