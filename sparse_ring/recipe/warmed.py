"""Density warm-up: dense at first, then sparser stage by stage (Lin et al., DGC, ICLR 2018, section 3.3)."""

from __future__ import annotations

from dataclasses import dataclass

from sparse_ring.errors import ConfigError
from sparse_ring.recipe.sparse import SparseRecipe

_FIRST_DENSITY = 0.25
_STAGE_FACTOR = 0.25


@dataclass(frozen=True, kw_only=True)
class WarmedRecipe(SparseRecipe):
    """A recipe whose density falls to ``density`` in equal stages.

    warmup_steps
        Steps over which the density falls in equal stages: dense, 25 %, 6.25 %, 1.56 %, … down to ``density``
        (DGC's schedule); 0 starts at ``density``. Default 100.
    """

    warmup_steps: int = 100

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
