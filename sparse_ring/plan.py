"""What all ranks agreed on: which parameter is sent how. Frozen; its hash travels in each message."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from sparse_ring.recipe import Recipe

# Positions inside a parameter are u32 in memory and on the wire.
LARGEST_NUMEL = 2**32 - 1


@dataclass(frozen=True)
class Described:
    """A parameter before planning: dtype as in ``"float32"``, and the recipe that its group asks for."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    recipe: Recipe


@dataclass(frozen=True)
class PlannedParameter:
    """One parameter of the plan.

    number
        Its number on the wire: the position among the named parameters.
    in_message
        It travels in messages; otherwise through the dense ring.
    compressed
        It travels as its recipe compresses it; otherwise whole, beside them.
    """

    number: int
    name: str
    shape: tuple[int, ...]
    dtype: str
    recipe: Recipe
    in_message: bool
    compressed: bool

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Plan:
    """Recipes applied to a model's parameters."""

    parameters: tuple[PlannedParameter, ...]

    @classmethod
    def of(cls, described: Sequence[Described]) -> Plan:
        """Plan the parameters in this order.

        Compression works on float32, so float16 and bfloat16 gradients are widened for it; other dtypes (float64, complex) and
        empty parameters take the dense ring, whatever the recipe. Raises ValueError for a parameter of 2**32 elements or more.
        """
        planned = []
        for number, one in enumerate(described):
            numel = math.prod(one.shape)
            if numel > LARGEST_NUMEL:
                raise ValueError(f"Parameter '{one.name}' has {numel} elements; at most {LARGEST_NUMEL} are supported.")
            recipe, fits = one.recipe, numel > 0 and one.dtype in ("float32", "float16", "bfloat16")
            in_message, compressed = fits and recipe.sends_messages(), fits and recipe.compresses(one.shape)
            planned.append(PlannedParameter(number, one.name, one.shape, one.dtype, recipe, in_message, compressed))
        return cls(tuple(planned))

    @cached_property
    def hash(self) -> int:
        """u32 over everything that must be the same on all ranks."""
        digest = hashlib.sha256(repr(self.parameters).encode()).digest()
        return int.from_bytes(digest[:4], "little")

    @cached_property
    def warmup(self) -> int:
        """Steps until every recipe has reached its final density."""
        return max((one.recipe.warmup for one in self.parameters), default=0)
