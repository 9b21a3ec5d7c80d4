"""Deep gradient compression (Lin et al., ICLR 2018)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from sparse_ring.error_feedback import ErrorFeedback, MomentumResidual
from sparse_ring.errors import ConfigError
from sparse_ring.kernels.base import Kernels
from sparse_ring.recipe.warmed import WarmedRecipe
from sparse_ring.select import SampledTopK, Selector


@dataclass(frozen=True, kw_only=True)
class DGC(WarmedRecipe):
    """u = m·u + g; r = r + u; send about the k largest of r, by a threshold that a sample says; then r -= decoded, u = 0 there.

    Momentum correction and factor masking are sections 3.2 and 3.3's, the sampled threshold and 0.8 to 1.3 k the authors' code's.
    As there, parameters with one dimension are not compressed. What coding loses stays in r; theirs sends float32 and clears r.

    density
        As in the paper, 0.001 by default.
    clip
        Each rank cuts a parameter's gradient to a norm of ``clip * P**-0.5`` with P ranks before it accumulates it (section 3.2's
        local clipping, parameter by parameter as in the authors' code); above 0. None (default): it does not.
    """

    density: float = 0.001
    clip: float | None = None
    takes_over_momentum: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clip is not None and not 0.0 < self.clip < math.inf:
            raise ConfigError("clip", self.clip, "a number above 0, or None")

    def clip_norm(self, size: int) -> float | None:
        """See :meth:`SelectingRecipe.clip_norm`."""
        return None if self.clip is None else self.clip * size**-0.5

    def error_feedback(self, numel: int, kernels: Kernels) -> ErrorFeedback:
        """Return a residual with a velocity."""
        return MomentumResidual(numel, kernels)

    def selector(self) -> Selector:
        """Return a selection by a sampled threshold."""
        return SampledTopK()
