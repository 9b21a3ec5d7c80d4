"""What a recipe is: a frozen description from which the pipeline composes each parameter's way.

A recipe holds no state and runs no code of its own: it names its parts (error feedback, selector, codec, exchange) and
decides per parameter and step how much is kept. State lives in the parts, one set a parameter and rank. Two recipes are
the same to the other ranks when their ``repr`` is; ranks with different ones are told so by name.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from sparse_ring.encode import VALUE_NAMES, CodecChoice, ValueCode
from sparse_ring.error_feedback import ErrorFeedback, Residual
from sparse_ring.errors import ConfigError
from sparse_ring.kernels.base import Kernels
from sparse_ring.select import Selector


@dataclass(frozen=True, kw_only=True)
class Recipe(ABC):
    """How gradients are compressed.

    wire
        dtype on the wire of what travels through the dense ring: ``"native"`` or ``"bfloat16"``.
    takes_over_momentum
        Sparse parameters accumulate velocity before the exchange, so the optimizer must not apply momentum to them again.
    """

    wire: ClassVar[str] = "native"
    takes_over_momentum: ClassVar[bool] = False

    @property
    def warmup(self) -> int:
        """Steps until the recipe has reached its final density."""
        return 0

    @abstractmethod
    def sends_messages(self) -> bool:
        """Return whether float32 parameters travel in messages (coded frames), and not through the dense ring."""

    def is_sparse(self, shape: tuple[int, ...]) -> bool:
        """Return whether a parameter of this shape is sent sparsely; the others are dense in the same message."""
        return False


SMALL_CODES = ("float32", "bfloat16", "int8")


@dataclass(frozen=True, kw_only=True)
class SparseRecipe(Recipe):
    """A recipe whose parameters are selected, coded and gathered as messages.

    density
        Fraction of a sparse parameter's elements that is sent a step, in (0, 1]; default 0.01. At least one element a parameter.
    indices
        Name of the index code: ``"golomb"`` (default), ``"elias_fano"``, ``"bitpack"``, ``"bitmap"``, ``"block16"``; ``"auto"``
        takes the smallest frame by frame.
    values
        Name of the value code: ``"float32"`` (lossless: receivers see what was selected, bit for bit), ``"float16"`` (default),
        ``"bfloat16"``, ``"int8"``, ``"int4"``, ``"int3"``, ``"int2"``, ``"sign"``. What the coding loses stays in the residual.
    minimum_elements
        Parameters with fewer elements stay dense, as do all with one dimension (biases, norms); default 1024.
    small
        How those are sent: ``"float32"`` (default, exact), ``"bfloat16"`` or ``"int8"``, both with a residual of their own.
    """

    density: float = 0.01
    indices: str = "golomb"
    values: str = "float16"
    minimum_elements: int = 1024
    small: str = "float32"

    def __post_init__(self) -> None:
        if not isinstance(self.density, (int, float)) or not 0.0 < self.density <= 1.0:
            raise ConfigError("density", self.density, "a number above 0 and at most 1")
        if self.minimum_elements < 1:
            raise ConfigError("minimum_elements", self.minimum_elements, "at least 1")
        if self.small not in SMALL_CODES:
            raise ConfigError("small", self.small, f"one of {', '.join(SMALL_CODES)}")
        CodecChoice.named(self.indices, self.values)

    def sends_messages(self) -> bool:
        """Return True."""
        return True

    def is_sparse(self, shape: tuple[int, ...]) -> bool:
        """Return whether the shape has two dimensions or more and enough elements."""
        return len(shape) > 1 and math.prod(shape) >= self.minimum_elements

    @property
    def codec(self) -> CodecChoice:
        """The value code, and the index code or how it is chosen."""
        return CodecChoice.named(self.indices, self.values)

    @property
    def small_code(self) -> ValueCode:
        """The value code of parameters that stay dense."""
        return VALUE_NAMES[self.small]

    def density_at(self, step: int) -> float:
        """Return the density of optimizer step ``step`` (from 0); 1.0 is a dense stage."""
        return self.density

    def keep(self, numel: int, step: int) -> int:
        """Return how many of ``numel`` elements are wanted at ``step``; ``numel`` itself asks for a dense frame."""
        return min(numel, max(1, round(numel * self.density_at(step))))

    def small_feedback(self, numel: int, kernels: Kernels) -> ErrorFeedback | None:
        """Return the fresh memory of a parameter that stays dense; None where it is sent exactly."""
        return None if self.small == "float32" else Residual(numel, kernels)

    @abstractmethod
    def error_feedback(self, numel: int, kernels: Kernels) -> ErrorFeedback:
        """Return the fresh memory of a parameter."""

    @abstractmethod
    def selector(self) -> Selector:
        """Return a fresh selector for a parameter."""
