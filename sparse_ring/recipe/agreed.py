"""The kind of recipe where all ranks send the same positions, so that values can be added on their way."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from sparse_ring.encode import INDEX_CHOICES, IndexChoice
from sparse_ring.error_feedback import ErrorFeedback
from sparse_ring.kernels.base import Kernels
from sparse_ring.recipe.base import CompressingRecipe, check_density, kept
from sparse_ring.select import Selector


@dataclass(frozen=True, kw_only=True)
class AgreedRecipe(CompressingRecipe):
    """A recipe whose positions are known to all ranks before values travel, which a ring then adds in float32.

    density
        Fraction of a compressed parameter's elements that is sent a step, in (0, 1]; default 0.01. At least one element a
        parameter.
    seed
        Of the positions that ranks draw alike; default 0.
    """

    density: float = 0.01
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_density(self.density)

    def keep(self, numel: int) -> int:
        """Return how many of ``numel`` elements are sent."""
        return kept(numel, self.density)

    @abstractmethod
    def error_feedback(self, numel: int, kernels: Kernels) -> ErrorFeedback:
        """Return the fresh memory of a parameter."""

    @property
    def position_code(self) -> IndexChoice:
        """In which a leader tells its positions."""
        return INDEX_CHOICES["golomb"]

    def selector(self) -> Selector | None:
        """Return a fresh selector, with which the step's leader picks the positions; None: all ranks draw them alike."""
        return None
