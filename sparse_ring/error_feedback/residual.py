"""Plain error feedback: r = r + g, and what was not sent stays (Seide et al., Interspeech 2014; Stich et al., NeurIPS 2018)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sparse_ring.error_feedback.base import ErrorFeedback, Floats, Indices, keep_rest, restored
from sparse_ring.kernels.base import Kernels
from sparse_ring.sparse import SparseGradient


class Residual(ErrorFeedback):
    """Keeps a residual; momentum stays with the optimizer, after the exchange."""

    def __init__(self, numel: int, kernels: Kernels) -> None:
        self.accumulated: Floats = np.zeros(numel, dtype=np.float32)
        self._kernels = kernels

    def accumulate(self, gradient: Floats, momentum: float, nesterov: bool) -> None:
        """``r = r + g``."""
        self._kernels.accumulate(gradient, None, self.accumulated, 0.0, False)

    def accumulate_select(
        self, gradient: Floats, momentum: float, nesterov: bool, threshold: float, indices: Indices, values: Floats
    ) -> int:
        """``r = r + g``, and the elements of r at or above the threshold."""
        return self._kernels.accumulate_select(gradient, None, self.accumulated, 0.0, False, threshold, indices, values)

    def sent(self, sparse: SparseGradient, decoded: Floats) -> None:
        """``r[i] = r[i] - decoded`` at the sent positions."""
        self._kernels.update_residual(self.accumulated, None, sparse.indices, sparse.values, decoded)

    def sent_all(self, decoded: Floats | None = None) -> None:
        """``r = 0``, or ``r = r - decoded``."""
        keep_rest(self.accumulated, decoded, self._kernels)

    def state_dict(self) -> dict[str, Floats]:
        """Return ``residual``."""
        return {"residual": self.accumulated}

    def load_state_dict(self, state: Mapping[str, Floats]) -> None:
        """Take over ``residual``."""
        self.accumulated = restored(state, "residual", self.accumulated.size)
