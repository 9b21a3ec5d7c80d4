"""Low rank with error feedback (Vogels, Karimireddy, Jaggi, PowerSGD, NeurIPS 2019)."""

from __future__ import annotations

from dataclasses import dataclass

from sparse_ring.error_feedback import ErrorFeedback, Residual
from sparse_ring.kernels.base import Kernels
from sparse_ring.recipe.factored import FactoredRecipe


@dataclass(frozen=True, kw_only=True)
class PowerSGD(FactoredRecipe):
    """One step of subspace iteration on r + g, started from the last step's factor; what the product misses waits in r.

    Momentum stays with the optimizer, after the exchange, as in the paper's algorithm 2.
    """

    def error_feedback(self, numel: int, kernels: Kernels) -> ErrorFeedback:
        """Return a residual."""
        return Residual(numel, kernels)
