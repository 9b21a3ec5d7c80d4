"""Two bits an element: -T, 0 or T (MXNet's gradient compression)."""

from __future__ import annotations

from dataclasses import dataclass

from sparse_ring.encode import WHOLE_NAMES, Coder, FixedCoder, root_mean_square
from sparse_ring.error_feedback import ErrorFeedback, Residual
from sparse_ring.errors import ConfigError
from sparse_ring.kernels.base import Kernels
from sparse_ring.recipe.quantized import QuantizedRecipe


@dataclass(frozen=True, kw_only=True)
class TwoBit(QuantizedRecipe):
    """r = r + g; send T where r >= T and -T where r <= -T; what is left waits in r.

    threshold
        T; None (default): the root mean square of what waits, anew in each step. [ours] MXNet wants a number.
    """

    threshold: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.threshold is not None and not 0.0 < self.threshold < 3e38:
            raise ConfigError("threshold", self.threshold, "a positive number, or None")

    def coder(self) -> Coder:
        """Return the three levels."""
        threshold = self.threshold
        return FixedCoder(WHOLE_NAMES["two2"], root_mean_square if threshold is None else lambda values: threshold)

    def error_feedback(self, numel: int, kernels: Kernels) -> ErrorFeedback:
        """Return a residual."""
        return Residual(numel, kernels)
