"""Signs, and the sign that most ranks have (Bernstein et al., signSGD with majority vote, ICLR 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sparse_ring.encode import VALUE_NAMES, Coder, FixedCoder
from sparse_ring.error_feedback import ErrorFeedback, Velocity
from sparse_ring.errors import ConfigError
from sparse_ring.kernels.base import Kernels
from sparse_ring.recipe.quantized import QuantizedRecipe


@dataclass(frozen=True, kw_only=True)
class SignSGD(QuantizedRecipe):
    """u = m * u + g; the aggregate is +1 or -1, as most ranks have the sign of u; one bit an element, and no residual.

    The optimizer's learning rate is then the step of every element, so it should be small (the papers take 1e-4). Each rank
    counts the votes for one part of a parameter. What is exactly zero counts as +1, so weights that never get a gradient drift.
    Where as many are for as against, one rank's vote counts, another's each step. [ours]
    """

    takes_over_momentum: ClassVar[bool] = True
    majority: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.exchange == "gather":
            raise ConfigError("exchange", self.exchange, "auto or owners: somebody has to count")
        if self.warmup_steps:
            raise ConfigError("warmup_steps", self.warmup_steps, "0: votes are signs from the first step on")

    @property
    def takes_nesterov(self) -> bool:
        """See :attr:`Recipe.takes_nesterov`."""
        return False

    @property
    def exempt(self) -> str:
        """See :attr:`Recipe.exempt`."""
        return "a vote is no sum"

    def has_owners(self, size: int) -> bool:
        """Return True: somebody has to count."""
        return True

    @property
    def keeps_residual(self) -> bool:
        """False."""
        return False

    def coder(self) -> Coder:
        """Return signs."""
        return FixedCoder(VALUE_NAMES["sign"])

    def error_feedback(self, numel: int, kernels: Kernels) -> ErrorFeedback:
        """Return a velocity."""
        return Velocity(numel, kernels)
