"""The kinds of recipe that select elements and send them, coded, to every rank."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from sparse_ring.encode import CodecChoice
from sparse_ring.error_feedback import ErrorFeedback
from sparse_ring.errors import ConfigError
from sparse_ring.kernels.base import Kernels
from sparse_ring.recipe.base import MessageRecipe, check_density, kept
from sparse_ring.select import Selector

SCOPES = ("parameter", "model")


@dataclass(frozen=True, kw_only=True)
class SelectingRecipe(MessageRecipe):
    """A recipe whose parameters are selected, coded and gathered as messages.

    indices
        Name of the index code: ``"golomb"`` (default), ``"interpolative"`` (fewer bits where positions are clustered, slower),
        ``"elias_fano"``, ``"bitpack"``, ``"bitmap"``, ``"block16"``; ``"auto"`` takes the smallest frame by frame.
    values
        Name of the value code: ``"float32"`` (lossless: receivers see what was selected, bit for bit), ``"float16"`` (default),
        ``"bfloat16"``, ``"int8"``, ``"int4"``, ``"int3"``, ``"int2"``, ``"sign"``. What the coding loses stays in the residual.
    """

    indices: str = "golomb"
    values: str = "float16"

    def __post_init__(self) -> None:
        super().__post_init__()
        CodecChoice.named(self.indices, self.values)

    @property
    def codec(self) -> CodecChoice:
        """The value code, and the index code or how it is chosen."""
        return CodecChoice.named(self.indices, self.values)

    @property
    def whole_model(self) -> bool:
        """Whether one threshold serves all parameters of an optimizer, and ``selector`` none."""
        return False

    def clip_norm(self, size: int) -> float | None:
        """Return the Euclidean norm to which each parameter's gradient is cut before it is accumulated, on each of ``size`` ranks.

        None: it is taken as it is.
        """
        return None

    @abstractmethod
    def keep(self, numel: int, step: int) -> int:
        """Return how many of ``numel`` elements are wanted at ``step``; ``numel`` itself asks for a dense frame."""

    @abstractmethod
    def error_feedback(self, numel: int, kernels: Kernels) -> ErrorFeedback:
        """Return the fresh memory of a parameter."""

    @abstractmethod
    def selector(self) -> Selector:
        """Return a fresh selector for a parameter."""


@dataclass(frozen=True, kw_only=True)
class SparseRecipe(SelectingRecipe):
    """A recipe that sends a given part of the elements.

    density
        Fraction of a compressed parameter's elements that is sent a step, in (0, 1]; default 0.01. At least one element a
        parameter.
    scope
        ``"parameter"`` (default): of each parameter that part. ``"model"``: that part of all compressed parameters together, by one
        threshold for all of them; each at most 8 times its share, some perhaps none. The threshold follows the density from step
        to step, which so is met on average. [ours]
    """

    density: float = 0.01
    scope: str = "parameter"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_density(self.density)
        if self.scope not in SCOPES:
            raise ConfigError("scope", self.scope, f"one of {', '.join(SCOPES)}")

    @property
    def whole_model(self) -> bool:
        """See :attr:`SelectingRecipe.whole_model`."""
        return self.scope == "model"

    def density_at(self, step: int) -> float:
        """Return the density of optimizer step ``step`` (from 0); 1.0 is a dense stage."""
        return self.density

    def keep(self, numel: int, step: int) -> int:
        """See :meth:`SelectingRecipe.keep`."""
        return kept(numel, self.density_at(step))
