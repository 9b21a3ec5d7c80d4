"""What a selector is: it drives a parameter's error feedback over one gradient and names the elements to send.

The selector is the one who calls ``accumulate`` or ``accumulate_select``, exactly once a step, because a selector that
knows its threshold beforehand does both in one pass over memory. The returned arrays are views of the scratch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from sparse_ring.error_feedback.base import ErrorFeedback
from sparse_ring.kernels.base import SPARE, Kernels
from sparse_ring.sparse import SparseGradient

Floats = NDArray[np.float32]


class Scratch:
    """Buffers of the selecting kernels, shared by all parameters of a rank (one engine thread uses them in turn)."""

    def __init__(self) -> None:
        self.indices = np.empty(SPARE, dtype=np.uint32)
        self.values = np.empty(SPARE, dtype=np.float32)
        self.decoded = np.empty(SPARE, dtype=np.float32)
        self._magnitudes = np.empty(0, dtype=np.float32)
        self._positions = np.empty(0, dtype=np.uint32)
        self._chosen = np.empty(0, dtype=np.float32)

    def reserve(self, capacity: int) -> None:
        """Make room for ``capacity`` elements (and the kernels' spare ones)."""
        if len(self.indices) < capacity + SPARE:
            self.indices = np.empty(capacity + SPARE, dtype=np.uint32)
            self.values = np.empty(capacity + SPARE, dtype=np.float32)
            self.decoded = np.empty(capacity + SPARE, dtype=np.float32)

    def magnitudes(self, numel: int) -> Floats:
        """Return room for ``numel`` magnitudes, for an exact selection."""
        if len(self._magnitudes) < numel:
            self._magnitudes = np.empty(numel, dtype=np.float32)
        return self._magnitudes[:numel]

    def second(self, count: int) -> tuple[NDArray[np.uint32], Floats]:
        """Return room for a selection among ``count`` elements that were selected (and the kernels' spare ones)."""
        if len(self._positions) < count + SPARE:
            self._positions = np.empty(count + SPARE, dtype=np.uint32)
            self._chosen = np.empty(count + SPARE, dtype=np.float32)
        return self._positions[: count + SPARE], self._chosen[: count + SPARE]

    def sparse(self, count: int, numel: int) -> SparseGradient:
        """Return the first ``count`` selected elements as views."""
        return SparseGradient(self.indices[:count], self.values[:count], numel)


class Selector(ABC):
    """Chooses the elements of one parameter; may keep state from step to step."""

    @abstractmethod
    def select(
        self,
        feedback: ErrorFeedback,
        gradient: Floats,
        momentum: float,
        nesterov: bool,
        keep: int,
        kernels: Kernels,
        scratch: Scratch,
    ) -> SparseGradient:
        """Accumulate ``gradient`` and return about ``keep`` (>= 1) elements of the accumulated array, in index order.

        Never a zero; none only where the accumulated array is zero everywhere, or where nothing reaches a threshold that does
        not depend on it alone.
        """

    def most(self, keep: int, numel: int) -> int:
        """Return how many elements ``select`` returns at most where ``keep`` of ``numel`` are wanted."""
        return keep

    def state_dict(self) -> dict[str, float]:
        """Return the state as numbers by name."""
        return {}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Take over what ``state_dict`` returned; an empty dict starts afresh."""
        if state:
            raise ValueError(f"{type(self).__name__} keeps no state, but {', '.join(state)} was given.")
