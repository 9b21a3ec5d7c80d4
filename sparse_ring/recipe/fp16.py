"""Half the bytes: float32 gradients cross the dense ring as float16."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sparse_ring.recipe.base import RingRecipe


@dataclass(frozen=True, kw_only=True)
class FP16(RingRecipe):
    """Sums stay float32 on a rank and are rounded to float16 (11 bits of precision) for each hop; no error feedback.

    Gradients beyond 65,504 become infinite and those below 6e-8 vanish, so BF16 is the safer choice where gradients are not
    scaled. Gradients of other dtypes travel as they are.
    """

    wire: ClassVar[str] = "float16"
