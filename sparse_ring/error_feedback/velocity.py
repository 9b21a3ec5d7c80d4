"""Momentum without error feedback: what is sent is a function of the velocity (Signum: Bernstein et al., ICML 2018)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sparse_ring.error_feedback.base import ErrorFeedback, Floats, Indices, dropped, restored
from sparse_ring.kernels.base import Kernels
from sparse_ring.sparse import SparseGradient


class Velocity(ErrorFeedback):
    """``u = m*u + g``, and ``accumulated`` is u; exempt from conservation. The optimizer must not apply momentum again."""

    def __init__(self, numel: int, kernels: Kernels) -> None:
        self.accumulated: Floats = np.zeros(numel, dtype=np.float32)
        self._kernels = kernels

    def accumulate(self, gradient: Floats, momentum: float, nesterov: bool) -> None:
        """``u = m*u + g``; ``nesterov`` changes nothing."""
        np.multiply(self.accumulated, np.float32(momentum), out=self.accumulated)
        self._kernels.accumulate(gradient, None, self.accumulated, 0.0, False)

    def accumulate_select(
        self, gradient: Floats, momentum: float, nesterov: bool, threshold: float, indices: Indices, values: Floats
    ) -> int:
        """As ``accumulate``, and the elements of u at or above the threshold."""
        self.accumulate(gradient, momentum, nesterov)
        return self._kernels.select(self.accumulated, threshold, indices, values)

    def sent(self, decoded: SparseGradient) -> None:
        """Keep the velocity as it is."""

    def sent_all(self, decoded: Floats) -> None:
        """Keep the velocity as it is."""

    def residual_norm(self) -> float:
        """Return 0: nothing waits."""
        return 0.0

    def drop_nonfinite(self) -> int:
        """See :meth:`ErrorFeedback.drop_nonfinite`."""
        return dropped(self.accumulated)

    def state_dict(self) -> dict[str, Floats]:
        """Return ``velocity``."""
        return {"velocity": self.accumulated}

    def load_state_dict(self, state: Mapping[str, Floats]) -> None:
        """Take over ``velocity``."""
        self.accumulated = restored(state, "velocity", self.accumulated.size)
