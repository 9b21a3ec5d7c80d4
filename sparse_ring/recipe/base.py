"""What a recipe is: a frozen description from which the pipeline composes each parameter's way.

A recipe holds no state and runs no code of its own: it names its parts (error feedback, selector, codes, exchange) and decides per
parameter and step how much is sent. State lives in the parts, one set a parameter and rank. Two recipes are the same to the
other ranks when their ``repr`` is; ranks with different ones are told so by name.

A recipe's *kind*, the class from which it derives, says how its gradients travel:

* :class:`RingRecipe`: whole arrays, added on a ring;
* :class:`~sparse_ring.recipe.sparse.SparseRecipe`: selected elements, as messages to every rank;
* :class:`~sparse_ring.recipe.quantized.QuantizedRecipe`: every element in few bits, as messages;
* :class:`~sparse_ring.recipe.agreed.AgreedRecipe`: elements at positions that all ranks know, added on a ring;
* :class:`~sparse_ring.recipe.factored.FactoredRecipe`: matrices as products of thin factors, added on a ring.

``docs/own-recipe.md`` builds one outside of the package.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from sparse_ring.encode import VALUE_NAMES, ValueCode
from sparse_ring.error_feedback import Residual
from sparse_ring.errors import ConfigError
from sparse_ring.kernels.base import Kernels


@dataclass(frozen=True, kw_only=True)
class Recipe(ABC):
    """How gradients are compressed.

    wire
        dtype on the wire of what travels through the dense ring: ``"native"``, ``"bfloat16"`` or ``"float16"``.
    takes_over_momentum
        Compressed parameters accumulate velocity before the exchange, so the optimizer must not apply momentum to them again.
    """

    wire: ClassVar[str] = "native"
    takes_over_momentum: ClassVar[bool] = False

    @property
    def exempt(self) -> str:
        """Why, over all ranks, what came in need not be what was applied and what waits; empty where it is."""
        return ""

    @property
    def warmup(self) -> int:
        """Steps until the recipe has reached its final density."""
        return 0

    @abstractmethod
    def sends_messages(self) -> bool:
        """Return whether float32 parameters that are not compressed travel in messages, and not through the dense ring."""

    @abstractmethod
    def compresses(self, shape: tuple[int, ...]) -> bool:
        """Return whether a parameter of this shape is compressed."""


@dataclass(frozen=True, kw_only=True)
class RingRecipe(Recipe):
    """A recipe that sends every gradient through the dense ring, in ``wire``'s dtype."""

    def sends_messages(self) -> bool:
        """Return False."""
        return False

    def compresses(self, shape: tuple[int, ...]) -> bool:
        """Return False."""
        return False


@dataclass(frozen=True, kw_only=True)
class CompressingRecipe(Recipe):
    """A recipe that leaves small parameters alone.

    minimum_elements
        Parameters with fewer elements are not compressed, as are all with one dimension (biases, norms); default 1024.
    """

    minimum_elements: int = 1024

    def __post_init__(self) -> None:
        if self.minimum_elements < 1:
            raise ConfigError("minimum_elements", self.minimum_elements, "at least 1")

    def sends_messages(self) -> bool:
        """Return False: what is not compressed takes the ring."""
        return False

    def compresses(self, shape: tuple[int, ...]) -> bool:
        """Return whether the shape has two dimensions or more and enough elements."""
        return len(shape) > 1 and math.prod(shape) >= self.minimum_elements


SMALL_CODES = ("float32", "bfloat16", "int8")


@dataclass(frozen=True, kw_only=True)
class MessageRecipe(CompressingRecipe):
    """A recipe whose parameters travel as frames of messages, small ones dense beside the compressed.

    small
        How parameters that are not compressed are sent: ``"float32"`` (default, exact), ``"bfloat16"`` or ``"int8"``, both with a
        residual of their own.
    """

    small: str = "float32"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.small not in SMALL_CODES:
            raise ConfigError("small", self.small, f"one of {', '.join(SMALL_CODES)}")

    def sends_messages(self) -> bool:
        """Return True."""
        return True

    @property
    def small_code(self) -> ValueCode | None:
        """The value code of parameters that are not compressed; None where they are sent exactly."""
        return None if self.small == "float32" else VALUE_NAMES[self.small]

    def small_feedback(self, numel: int, kernels: Kernels) -> Residual:
        """Return the fresh memory of a parameter that is not compressed but coded."""
        return Residual(numel, kernels)


def check_density(density: float) -> None:
    """Raise ConfigError for what is no density."""
    if not isinstance(density, (int, float)) or not 0.0 < density <= 1.0:
        raise ConfigError("density", density, "a number above 0 and at most 1")


def kept(numel: int, density: float) -> int:
    """Return how many of ``numel`` elements a density keeps, at least one."""
    return min(numel, max(1, round(numel * density)))
