"""Random positions that all ranks draw alike (Stich et al., Sparsified SGD with Memory, NeurIPS 2018: rand-k)."""

from __future__ import annotations

from dataclasses import dataclass

from sparse_ring.error_feedback import ErrorFeedback, Residual
from sparse_ring.kernels.base import Kernels
from sparse_ring.recipe.agreed import AgreedRecipe


@dataclass(frozen=True, kw_only=True)
class RandomK(AgreedRecipe):
    """r = r + g; send r at k random positions; what is left waits. No positions travel, and the ring adds the values."""

    def error_feedback(self, numel: int, kernels: Kernels) -> ErrorFeedback:
        """Return a residual."""
        return Residual(numel, kernels)
