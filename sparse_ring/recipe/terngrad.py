"""Ternary gradients (Wen et al., TernGrad, NIPS 2017)."""

from __future__ import annotations

from dataclasses import dataclass

from sparse_ring.encode import WHOLE_NAMES, Coder, FixedCoder, largest_magnitude
from sparse_ring.error_feedback import ErrorFeedback, Memoryless
from sparse_ring.errors import ConfigError
from sparse_ring.kernels.base import Kernels
from sparse_ring.recipe.quantized import QuantizedRecipe


@dataclass(frozen=True, kw_only=True)
class TernGrad(QuantizedRecipe):
    """s * sign(g) * b, with b drawn from {0, 1} so that the mean is g; 1.6 bits an element.

    Gradients are clipped at ``clip_sigmas`` standard deviations first (section 3.3). s is the largest magnitude over all ranks
    (section 3.2's scaler sharing), which costs a ring of 4 bytes a parameter. There is no residual.

    clip_sigmas
        Above 0; default 2.5. Gradients of warm-up steps are clipped as well.
    minimum_elements
        As in the authors' code, 9,217 by default.
    """

    minimum_elements: int = 9217
    clip_sigmas: float = 2.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.clip_sigmas > 0.0:
            raise ConfigError("clip_sigmas", self.clip_sigmas, "above 0")
        if self.exchange == "owners":
            raise ConfigError("exchange", self.exchange, "auto or gather: all ranks' digits have one unit")

    @property
    def exempt(self) -> str:
        """See :attr:`Recipe.exempt`."""
        return "unbiased, and keeps no residual"

    @property
    def keeps_residual(self) -> bool:
        """False."""
        return False

    def coder(self) -> Coder:
        """Return ternary digits in units of the largest magnitude of all ranks."""
        return FixedCoder(WHOLE_NAMES["ternary"], largest_magnitude, shares_unit=True)

    def error_feedback(self, numel: int, kernels: Kernels) -> ErrorFeedback:
        """Return the clipped gradient's place."""
        return Memoryless(numel, kernels, self.clip_sigmas)
