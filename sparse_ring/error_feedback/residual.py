"""Plain error feedback: r = r + g, and what was not sent stays (Seide et al., Interspeech 2014; Stich et al., NeurIPS 2018)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sparse_ring.error_feedback.base import ErrorFeedback, Floats, Indices, dropped, restored
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

    def sent(self, decoded: SparseGradient) -> None:
        """``r[i] = r[i] - decoded`` at the sent positions."""
        values = self.accumulated[decoded.indices]
        self._kernels.update_residual(self.accumulated, None, decoded.indices, values, decoded.values)

    def sent_all(self, decoded: Floats) -> None:
        """``r = r - decoded``."""
        self._kernels.add_scaled(self.accumulated, decoded, -1.0)

    def drop_nonfinite(self) -> int:
        """See :meth:`ErrorFeedback.drop_nonfinite`."""
        return dropped(self.accumulated)

    def state_dict(self) -> dict[str, Floats]:
        """Return ``residual``."""
        return {"residual": self.accumulated}

    def load_state_dict(self, state: Mapping[str, Floats]) -> None:
        """Take over ``residual``."""
        self.accumulated = restored(state, "residual", self.accumulated.size)
