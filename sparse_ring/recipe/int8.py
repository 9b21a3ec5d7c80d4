"""8 bits an element: even levels, or Dettmers' dynamic tree (8-bit approximations for parallelism, ICLR 2016)."""

from __future__ import annotations

from dataclasses import dataclass

from sparse_ring.encode import WHOLE_NAMES, Coder, FixedCoder
from sparse_ring.error_feedback import ErrorFeedback, Memoryless, Residual
from sparse_ring.errors import ConfigError
from sparse_ring.kernels.base import Kernels
from sparse_ring.recipe.quantized import QuantizedRecipe

_LEVELS = {"even": "block8", "tree": "tree8"}


@dataclass(frozen=True, kw_only=True)
class Int8(QuantizedRecipe):
    """r = r + g; send r in 8 bits an element; what rounding loses waits in r.

    levels
        ``"even"`` (default): 127 levels up to the largest magnitude of each 256 elements; ``"tree"``: seven decades below the
        largest of each 4,096.
    residual
        False keeps nothing of what rounding loses, as in the paper; default True.
    """

    levels: str = "even"
    residual: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.levels not in _LEVELS:
            raise ConfigError("levels", self.levels, f"one of {', '.join(_LEVELS)}")

    @property
    def exempt(self) -> str:
        """See :attr:`Recipe.exempt`."""
        return "" if self.residual else "keeps no residual"

    @property
    def keeps_residual(self) -> bool:
        """Whether ``residual``."""
        return self.residual

    def coder(self) -> Coder:
        """Return the chosen levels."""
        return FixedCoder(WHOLE_NAMES[_LEVELS[self.levels]])

    def error_feedback(self, numel: int, kernels: Kernels) -> ErrorFeedback:
        """Return a residual, or the gradient's place."""
        return Residual(numel, kernels) if self.residual else Memoryless(numel, kernels)
