"""The kind of recipe that sends every element in few bits."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from sparse_ring.encode import Coder, WarmupCoder
from sparse_ring.error_feedback import ErrorFeedback
from sparse_ring.errors import ConfigError
from sparse_ring.kernels.base import Kernels
from sparse_ring.recipe.base import MessageRecipe

EXCHANGES = ("auto", "gather", "owners")


@dataclass(frozen=True, kw_only=True)
class QuantizedRecipe(MessageRecipe):
    """A recipe whose parameters are coded whole.

    exchange
        ``"gather"``: every rank's frames go to every rank, ``P - 1`` times their bytes from each of P ranks. ``"owners"``: each
        rank adds up one part of the parameter, codes the sum again and sends that to all: ``2 (P - 1) / P`` times the bytes, and
        a second coding, whose error stays in the owner's residual. ``"auto"`` (default): owners from 3 ranks on, where the
        recipe keeps a residual.
    warmup_steps
        Steps at first in which gradients are sent exactly; default 0.
    seed
        Of the random numbers of stochastic codes; default 0.
    majority
        The aggregate is the sign that most ranks sent, and not the mean.
    """

    exchange: str = "auto"
    warmup_steps: int = 0
    seed: int = 0
    majority: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.exchange not in EXCHANGES:
            raise ConfigError("exchange", self.exchange, f"one of {', '.join(EXCHANGES)}")
        if self.warmup_steps < 0:
            raise ConfigError("warmup_steps", self.warmup_steps, "0 or more")

    @property
    def warmup(self) -> int:
        """See :attr:`Recipe.warmup`."""
        return self.warmup_steps

    def has_owners(self, size: int) -> bool:
        """Return whether parts have owners among ``size`` ranks."""
        return self.exchange == "owners" or (self.exchange == "auto" and size > 2 and self.keeps_residual)

    @property
    def keeps_residual(self) -> bool:
        """Whether what coding loses is kept and sent later."""
        return True

    @abstractmethod
    def coder(self) -> Coder:
        """Return what chooses the code of a parameter's elements after the warm-up, step by step; fresh."""

    def coder_with_warmup(self) -> Coder:
        """Return what chooses the code at all steps; fresh."""
        return WarmupCoder(self.coder(), self.warmup_steps) if self.warmup_steps else self.coder()

    @abstractmethod
    def error_feedback(self, numel: int, kernels: Kernels) -> ErrorFeedback:
        """Return the fresh memory of a parameter."""
