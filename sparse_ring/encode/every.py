"""The index code of a dense frame: every position, no bits."""

from __future__ import annotations

import numpy as np

from sparse_ring.encode.base import Bytes, IndexCode, Indices
from sparse_ring.errors import MessageError
from sparse_ring.kernels.base import Kernels


class EveryIndex(IndexCode):
    """All positions in order: a dense frame."""

    identifier = 0
    name = "every"

    def bound(self, count: int, numel: int) -> int:
        """Return 0."""
        return 0

    def size(self, indices: Indices, numel: int, kernels: Kernels) -> int:
        """Return 0."""
        return 0

    def encode(self, indices: Indices, numel: int, out: Bytes, kernels: Kernels) -> int:
        """Write nothing; ``indices`` must be all ``numel`` positions."""
        return 0

    def decode(self, payload: Bytes, numel: int, indices: Indices, kernels: Kernels) -> None:
        """Fill ``indices`` with 0, 1, 2, …"""
        if payload.size or len(indices) != numel:
            raise MessageError(f"dense frame with {len(indices)} of {numel} elements and {payload.size} index bytes")
        indices[:] = np.arange(numel, dtype=np.uint32)
