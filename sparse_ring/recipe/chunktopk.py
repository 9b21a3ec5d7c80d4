"""The largest of every chunk of 4,096 elements (as in SparseLoCo: Sarfi et al., 2025, whose chunks are as large)."""

from __future__ import annotations

from dataclasses import dataclass

from sparse_ring.error_feedback import ErrorFeedback, Residual
from sparse_ring.kernels.base import CHUNK, Kernels, chunks_keep
from sparse_ring.recipe.base import check_density, kept
from sparse_ring.recipe.sparse import SelectingRecipe
from sparse_ring.select import LargestOfChunks, Selector


@dataclass(frozen=True, kw_only=True)
class ChunkTopK(SelectingRecipe):
    """r = r + g; send the largest of r of each chunk; what is left waits. Momentum stays with the optimizer, after the exchange.

    density
        Fraction of a chunk's elements, in (0, 1]; default 0.01. At least one of each chunk.
    """

    density: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        check_density(self.density)

    def keep(self, numel: int, step: int) -> int:
        """See :meth:`SelectingRecipe.keep`."""
        return chunks_keep(numel, kept(CHUNK, self.density))

    def error_feedback(self, numel: int, kernels: Kernels) -> ErrorFeedback:
        """Return a residual."""
        return Residual(numel, kernels)

    def selector(self) -> Selector:
        """Return a selection by chunks."""
        return LargestOfChunks(kept(CHUNK, self.density))
