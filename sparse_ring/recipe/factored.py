"""The kind of recipe that sends a matrix as the product of two thin ones."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from sparse_ring.error_feedback import ErrorFeedback
from sparse_ring.errors import ConfigError
from sparse_ring.kernels.base import Kernels
from sparse_ring.recipe.base import CompressingRecipe


@dataclass(frozen=True, kw_only=True)
class FactoredRecipe(CompressingRecipe):
    """A recipe whose matrices, ``shape[0]`` rows of all other dimensions, are approximated by ``rank`` columns times rows.

    rank
        Columns of the factors, from 1 to 64; default 4. Parameters that their factors would not make smaller are not compressed.
    seed
        Of the first factors, which all ranks draw alike; default 0.
    """

    rank: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.rank, int) or not 1 <= self.rank <= 64:
            raise ConfigError("rank", self.rank, "a whole number from 1 to 64")
        if self.seed < 0:
            raise ConfigError("seed", self.seed, "0 or more")

    def compresses(self, shape: tuple[int, ...]) -> bool:
        """Return whether the shape has two dimensions or more, enough elements, and factors with fewer."""
        if not super().compresses(shape):
            return False
        rows, columns = matrix_shape(shape)
        return self.rank * (rows + columns) < rows * columns

    @abstractmethod
    def error_feedback(self, numel: int, kernels: Kernels) -> ErrorFeedback:
        """Return the fresh memory of a parameter."""


def matrix_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return rows and columns of a parameter as a matrix: the first dimension, and all others."""
    rows, columns = shape[0], 1
    for length in shape[1:]:
        columns *= length
    return rows, columns
