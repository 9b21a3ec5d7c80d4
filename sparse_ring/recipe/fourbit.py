"""A fixed number of bits, four, with levels that fit the layer (HUST, 2020: 4-bit quantisation by layer class)."""

from __future__ import annotations

from dataclasses import dataclass

from sparse_ring.encode import WHOLE_NAMES, Coder, FixedCoder
from sparse_ring.error_feedback import ErrorFeedback, Residual
from sparse_ring.kernels.base import Kernels
from sparse_ring.recipe.quantized import QuantizedRecipe


@dataclass(frozen=True, kw_only=True)
class FourBit(QuantizedRecipe):
    """r = r + g; send r in 15 levels {0, +-a1 T ... +-a7 T}; what rounding loses waits in r.

    The abstract states 4 bits an element and three sets of thresholds by class of layer. [ours] The levels are geometric, and a
    layer's class is measured for each frame, by how heavy its tail is (the ratio of mean square to squared mean magnitude).
    """

    def coder(self) -> Coder:
        """Return the 15 levels."""
        return FixedCoder(WHOLE_NAMES["four4"])

    def error_feedback(self, numel: int, kernels: Kernels) -> ErrorFeedback:
        """Return a residual."""
        return Residual(numel, kernels)
