"""Positions as 16-bit numbers inside blocks of 65,536: no bits to shift, the fastest."""

from __future__ import annotations

from sparse_ring.encode.base import Bytes, IndexCode, Indices
from sparse_ring.kernels.base import Kernels, block16_bound


class Block16(IndexCode):
    """16 bits an element and 32 a block that holds one."""

    identifier = 5
    name = "block16"

    def bound(self, count: int, numel: int) -> int:
        """See :meth:`IndexCode.bound`."""
        return block16_bound(count, numel)

    def size(self, indices: Indices, numel: int, kernels: Kernels) -> int:
        """See :meth:`IndexCode.size`."""
        return kernels.block16_size(indices)

    def encode(self, indices: Indices, numel: int, out: Bytes, kernels: Kernels) -> int:
        """See :meth:`IndexCode.encode`."""
        return kernels.block16_encode(indices, numel, out)

    def decode(self, payload: Bytes, numel: int, indices: Indices, kernels: Kernels) -> None:
        """See :meth:`IndexCode.decode`."""
        kernels.block16_decode(payload, numel, indices)
