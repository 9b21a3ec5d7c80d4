"""One bit an element (Seide et al., 1-bit stochastic gradient descent, Interspeech 2014)."""

from __future__ import annotations

from dataclasses import dataclass

from sparse_ring.encode import WHOLE_NAMES, Coder, FixedCoder
from sparse_ring.error_feedback import ErrorFeedback, Residual
from sparse_ring.kernels.base import Kernels
from sparse_ring.recipe.quantized import QuantizedRecipe


@dataclass(frozen=True, kw_only=True)
class OneBit(QuantizedRecipe):
    """r = r + g; send whether each element of r is negative, and the means of both kinds; what that loses waits in r.

    Means are those of 4,096 elements [ours]; the paper takes a column's. It starts from a dense warm start, here ``warmup_steps``.
    """

    warmup_steps: int = 20

    def coder(self) -> Coder:
        """Return one bit and two means."""
        return FixedCoder(WHOLE_NAMES["one1"])

    def error_feedback(self, numel: int, kernels: Kernels) -> ErrorFeedback:
        """Return a residual."""
        return Residual(numel, kernels)
