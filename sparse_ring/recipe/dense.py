"""No compression: every gradient through the dense ring in its own dtype."""

from __future__ import annotations

from dataclasses import dataclass

from sparse_ring.recipe.base import RingRecipe


@dataclass(frozen=True, kw_only=True)
class Dense(RingRecipe):
    """Ring allreduce of all elements (Patarasuk and Yuan, 2009); the result differs from one process only by rounding."""
