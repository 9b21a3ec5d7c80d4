"""What has reached a threshold that is given (as in Strom, Interspeech 2015, who sends the threshold in place of the value)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sparse_ring.error_feedback import ErrorFeedback, Residual
from sparse_ring.errors import ConfigError
from sparse_ring.kernels.base import Kernels
from sparse_ring.recipe.base import kept
from sparse_ring.recipe.sparse import SelectingRecipe
from sparse_ring.select import FixedThreshold, Selector


@dataclass(frozen=True, kw_only=True)
class Threshold(SelectingRecipe):
    """r = r + g; send every r with |r| >= threshold; what is left waits. Momentum stays with the optimizer, after the exchange.

    threshold
        Absolute, above 0; default 0.001. How much is sent so follows the gradients, and falls as they do.
    most_density
        Where a larger part of a parameter has reached the threshold, that part, the largest, is sent: messages stay bounded. Above
        0 and at most 0.5; default 0.1.
    """

    threshold: float = 0.001
    most_density: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        # Below the smallest normal float32 lies nothing worth sending.
        if not 2.0**-126 <= self.threshold < math.inf:
            raise ConfigError("threshold", self.threshold, "a number above 0 (at least 2**-126)")
        if not 0.0 < self.most_density <= 0.5:
            raise ConfigError("most_density", self.most_density, "a number above 0 and at most 0.5")

    def keep(self, numel: int, step: int) -> int:
        """See :meth:`SelectingRecipe.keep`: the most that is sent."""
        return kept(numel, self.most_density)

    def error_feedback(self, numel: int, kernels: Kernels) -> ErrorFeedback:
        """Return a residual."""
        return Residual(numel, kernels)

    def selector(self) -> Selector:
        """Return a selection by the threshold."""
        return FixedThreshold(self.threshold)
