"""Half the bytes: float32 gradients cross the dense ring as bfloat16."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sparse_ring.recipe.base import Recipe


@dataclass(frozen=True, kw_only=True)
class BF16(Recipe):
    """Sums stay float32 on a rank and are rounded to bfloat16 (8 bits of precision) for each hop; no error feedback.

    Gradients of other dtypes travel as they are.
    """

    wire: ClassVar[str] = "bfloat16"

    def sends_messages(self) -> bool:
        """Return False."""
        return False
