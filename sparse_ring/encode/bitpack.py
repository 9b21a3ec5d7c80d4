"""Gaps of a block packed in as many bits as its largest needs: larger than Golomb's, faster to read."""

from __future__ import annotations

from sparse_ring.encode.base import Bytes, IndexCode, Indices
from sparse_ring.kernels.base import Kernels, bitpack_bound


class Bitpack(IndexCode):
    """Blocks of 128 gaps, each with its own width."""

    identifier = 2
    name = "bitpack"

    def bound(self, count: int, numel: int) -> int:
        """See :meth:`IndexCode.bound`."""
        return bitpack_bound(count)

    def size(self, indices: Indices, numel: int, kernels: Kernels) -> int:
        """See :meth:`IndexCode.size`."""
        return kernels.bitpack_size(indices)

    def encode(self, indices: Indices, numel: int, out: Bytes, kernels: Kernels) -> int:
        """See :meth:`IndexCode.encode`."""
        return kernels.bitpack_encode(indices, numel, out)

    def decode(self, payload: Bytes, numel: int, indices: Indices, kernels: Kernels) -> None:
        """See :meth:`IndexCode.decode`."""
        kernels.bitpack_decode(payload, numel, indices)
