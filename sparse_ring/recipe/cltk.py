"""The k largest of one rank, in turn, at all ranks (CLT-k: Chen et al., ScaleCom, NeurIPS 2020)."""

from __future__ import annotations

from dataclasses import dataclass

from sparse_ring.encode import INDEX_CHOICES, IndexChoice
from sparse_ring.error_feedback import ErrorFeedback, Residual
from sparse_ring.errors import ConfigError
from sparse_ring.kernels.base import Kernels
from sparse_ring.recipe.agreed import AgreedRecipe
from sparse_ring.select import ExactTopK, Selector


@dataclass(frozen=True, kw_only=True)
class CLTK(AgreedRecipe):
    """r = r + g; the step's leader tells the positions of its k largest r; all send r there; what is left waits.

    Residuals of the ranks grow alike, so what is large at one is large at the others (ScaleCom, section 3). The paper's low-pass
    filter for large batches is not part of it.

    indices
        Name of the code in which a leader tells its positions; default ``"golomb"``.
    """

    indices: str = "golomb"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.indices not in INDEX_CHOICES:
            raise ConfigError("indices", self.indices, f"one of {', '.join(INDEX_CHOICES)}")

    @property
    def position_code(self) -> IndexChoice:
        """See :attr:`AgreedRecipe.position_code`."""
        return INDEX_CHOICES[self.indices]

    def error_feedback(self, numel: int, kernels: Kernels) -> ErrorFeedback:
        """Return a residual."""
        return Residual(numel, kernels)

    def selector(self) -> Selector:
        """Return an exact selection."""
        return ExactTopK()
