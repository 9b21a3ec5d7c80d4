"""Half the bytes: float32 gradients cross the dense ring as bfloat16."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sparse_ring.recipe.base import RingRecipe


@dataclass(frozen=True, kw_only=True)
class BF16(RingRecipe):
    """Sums stay float32 on a rank and are rounded to bfloat16 (8 bits of precision) for each hop; no error feedback.

    Gradients of other dtypes travel as they are.
    """

    wire: ClassVar[str] = "bfloat16"
