"""Stochastic levels below the norm of each block (Alistarh et al., QSGD, NIPS 2017)."""

from __future__ import annotations

from dataclasses import dataclass

from sparse_ring.encode import WHOLE_NAMES, Coder, FixedCoder
from sparse_ring.error_feedback import ErrorFeedback, Memoryless
from sparse_ring.errors import ConfigError
from sparse_ring.kernels.base import Kernels
from sparse_ring.recipe.quantized import QuantizedRecipe

_BITS = (2, 4, 8)


@dataclass(frozen=True, kw_only=True)
class QSGD(QuantizedRecipe):
    """norm * sign(g) * level / s for blocks of 512 elements, levels drawn so that the mean is g; no residual.

    bits
        2, 4 (default) or 8 an element, the sign among them: s is 1, 7 or 127.
    """

    bits: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bits not in _BITS:
            raise ConfigError("bits", self.bits, "2, 4 or 8")

    @property
    def exempt(self) -> str:
        """See :attr:`Recipe.exempt`."""
        return "unbiased, and keeps no residual"

    @property
    def keeps_residual(self) -> bool:
        """False."""
        return False

    def coder(self) -> Coder:
        """Return the levels of so many bits."""
        return FixedCoder(WHOLE_NAMES[f"qsgd{self.bits}"])

    def error_feedback(self, numel: int, kernels: Kernels) -> ErrorFeedback:
        """Return the gradient's place."""
        return Memoryless(numel, kernels)
