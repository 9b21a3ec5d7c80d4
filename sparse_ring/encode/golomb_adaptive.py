"""Golomb code of the gaps with a parameter that follows them, as is done for residuals of images (LOCO-I, IEEE TIP 2000)."""

from __future__ import annotations

from sparse_ring.encode.base import Bytes, IndexCode, Indices
from sparse_ring.kernels.base import Kernels, golomb_adaptive_bound


class GolombAdaptive(IndexCode):
    """Below the entropy of evenly spread positions where they crowd, as those of real gradients do: in rows of live units.

    The parameter of each group of 8 gaps comes from the gaps before, so nothing but the gaps is sent. [ours] the rule.
    """

    identifier = 6
    name = "golomb_adaptive"

    def bound(self, count: int, numel: int) -> int:
        """See :meth:`IndexCode.bound`."""
        return golomb_adaptive_bound(count, numel)

    def size(self, indices: Indices, numel: int, kernels: Kernels) -> int:
        """See :meth:`IndexCode.size`."""
        return kernels.golomb_adaptive_size(indices, numel)

    def encode(self, indices: Indices, numel: int, out: Bytes, kernels: Kernels) -> int:
        """See :meth:`IndexCode.encode`."""
        return kernels.golomb_adaptive_encode(indices, numel, out)

    def decode(self, payload: Bytes, numel: int, indices: Indices, kernels: Kernels) -> None:
        """See :meth:`IndexCode.decode`."""
        kernels.golomb_adaptive_decode(payload, numel, indices)
