"""What waits, pulled along by the history of what all ranks sent. [ours]"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sparse_ring.error_feedback.base import Floats, restored
from sparse_ring.error_feedback.compensation import Applied, Compensation
from sparse_ring.kernels.base import Kernels


class History(Compensation):
    """``h = strength * h + aggregate``; then ``r[i] += strength * h[i]`` where this rank did not send in the step just done.

    The history is that of approximated gradients, as GradSA's paper calls it. It is the same on all ranks, and takes as much
    memory as the residual, from the first step on.

    strength
        What is added is sent in the end and so becomes history in turn; with P ranks one sent element brings about up to
        ``strength / (1 - strength)`` of itself. That this is below 1 takes a strength below 0.5.
    """

    def __init__(self, strength: float, kernels: Kernels) -> None:
        self._strength, self._kernels = strength, kernels
        self.history: Floats | None = None

    def apply(self, residual: Floats, applied: Applied) -> None:
        """See :meth:`Compensation.apply`."""
        if self.history is None:
            self.history = np.zeros_like(residual)
        history = self.history
        with np.errstate(all="ignore"):
            np.multiply(history, np.float32(self._strength), out=history)
            np.add(history, applied.aggregate, out=history)
        if not self._kernels.all_finite(history):
            history[~np.isfinite(history)] = 0.0
        if applied.sent is None:
            return
        as_it_was = residual[applied.sent]
        self._kernels.add_scaled(residual, history, self._strength * applied.part)
        residual[applied.sent] = as_it_was

    def state_dict(self) -> dict[str, Floats]:
        """Return ``history``, once there is one."""
        return {} if self.history is None else {"history": self.history}

    def load_state_dict(self, state: Mapping[str, Floats], numel: int) -> None:
        """Take over ``history``."""
        self.history = restored(state, "history", numel) if "history" in state else None
