"""As many bits as a parameter's gradient needs (HUST, 2020: quantisation by gradient characteristics)."""

from __future__ import annotations

from dataclasses import dataclass

from sparse_ring.encode import WHOLE_NAMES, AdaptiveCoder, Coder, root_mean_square
from sparse_ring.error_feedback import ErrorFeedback, Residual
from sparse_ring.errors import ConfigError
from sparse_ring.kernels.base import Kernels
from sparse_ring.recipe.quantized import QuantizedRecipe

_CODES = ("one1", "two2", "four4", "block8")


@dataclass(frozen=True, kw_only=True)
class AdaptiveBits(QuantizedRecipe):
    """r = r + g; send r in 1, 2, 4 or 8 bits an element, the fewest that keep the error small; what is lost waits in r.

    The abstract has the idea and no rule. [ours] Every ``period`` steps each rank codes a parameter with one width after the other
    until the error is below ``target``; frames name their code, so ranks need not agree.

    target
        Euclidean norm of the error in units of that of what is sent; default 0.5.
    period
        Steps between choices; default 100.
    """

    target: float = 0.5
    period: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.target > 0.0:
            raise ConfigError("target", self.target, "a positive number")
        if self.period < 1:
            raise ConfigError("period", self.period, "at least 1")

    def coder(self) -> Coder:
        """Return the four widths."""
        codes = [WHOLE_NAMES[name] for name in _CODES]
        return AdaptiveCoder(codes, self.target, self.period, root_mean_square)

    def error_feedback(self, numel: int, kernels: Kernels) -> ErrorFeedback:
        """Return a residual."""
        return Residual(numel, kernels)
