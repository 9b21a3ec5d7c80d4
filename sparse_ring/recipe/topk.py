"""The k largest magnitudes with error feedback (Stich et al., Sparsified SGD with Memory, NeurIPS 2018)."""

from __future__ import annotations

from dataclasses import dataclass

from sparse_ring.error_feedback import ErrorFeedback, Residual
from sparse_ring.kernels.base import Kernels
from sparse_ring.recipe.sparse import SparseRecipe
from sparse_ring.select import ExactTopK, Selector


@dataclass(frozen=True, kw_only=True)
class TopK(SparseRecipe):
    """r = r + g; send the k largest of r; what is left waits. Momentum stays with the optimizer, after the exchange."""

    def error_feedback(self, numel: int, kernels: Kernels) -> ErrorFeedback:
        """Return a residual."""
        return Residual(numel, kernels)

    def selector(self) -> Selector:
        """Return an exact selection."""
        return ExactTopK()
