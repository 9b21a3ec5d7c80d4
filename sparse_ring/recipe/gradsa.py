"""GradSA: layer-wise sparse gradients with momentum correction, layer-wise selection and density warm-up.

The paper (GPC 2020) states layer-level sparsification, staleness compensation and an efficient encoding of the sparse
accumulated gradients, and no formulas; what runs here is our reconstruction (``docs/algorithms.md``). Staleness
compensation is not part of it yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sparse_ring.error_feedback import ErrorFeedback, MomentumResidual
from sparse_ring.errors import ConfigError
from sparse_ring.kernels.base import Kernels
from sparse_ring.recipe.sparse import SparseRecipe
from sparse_ring.select import ExactTopK, Selector

_FIRST_DENSITY = 0.25
_STAGE_FACTOR = 0.25


@dataclass(frozen=True, kw_only=True)
class GradSA(SparseRecipe):
    """u = m·u + g; r = r + u; send the k largest of r, whose border is the parameter's threshold; then r -= decoded, u = 0 there.

    warmup_steps
        Steps over which the density falls in equal stages: dense, 25 %, 6.25 %, 1.56 %, … down to ``density``
        (DGC's schedule); 0 starts at ``density``. Default 100.
    """

    warmup_steps: int = 100
    takes_over_momentum: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.warmup_steps < 0:
            raise ConfigError("warmup_steps", self.warmup_steps, "0 or more")

    @property
    def warmup(self) -> int:
        """See :attr:`Recipe.warmup`."""
        return self.warmup_steps

    @property
    def stages(self) -> tuple[float, ...]:
        """Densities of the warm-up, first to last, each above ``density``."""
        stages = [1.0]
        density = _FIRST_DENSITY
        while density > self.density:
            stages.append(density)
            density *= _STAGE_FACTOR
        return tuple(stages) if self.density < 1.0 else ()

    def density_at(self, step: int) -> float:
        """See :meth:`SparseRecipe.density_at`."""
        if step >= self.warmup_steps or not self.stages:
            return self.density
        return self.stages[step * len(self.stages) // self.warmup_steps]

    def error_feedback(self, numel: int, kernels: Kernels) -> ErrorFeedback:
        """Return a residual with a velocity."""
        return MomentumResidual(numel, kernels)

    def selector(self) -> Selector:
        """Return an exact selection."""
        return ExactTopK()
