"""Momentum correction: the velocity is accumulated locally, before the exchange (Lin et al., DGC, ICLR 2018, sections 3.1-3.2).

u = m*u + g,  r = r + u;  after sending, r -= decoded and u = 0 at the sent positions (momentum factor masking).
GradSA uses the same state; see ``docs/algorithms.md`` for what of that is the paper's and what our reconstruction.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sparse_ring.error_feedback.base import ErrorFeedback, Floats, Indices, dropped, restored
from sparse_ring.kernels.base import Kernels
from sparse_ring.sparse import SparseGradient


class MomentumResidual(ErrorFeedback):
    """Keeps a residual and a velocity; the optimizer must not apply its own momentum to this parameter.

    The velocity's memory is taken at the first step with a momentum above 0; without one this is plain error feedback.
    """

    def __init__(self, numel: int, kernels: Kernels) -> None:
        self.accumulated: Floats = np.zeros(numel, dtype=np.float32)
        self.velocity: Floats | None = None
        self._kernels = kernels

    def accumulate(self, gradient: Floats, momentum: float, nesterov: bool) -> None:
        """``u = m*u + g; r = r + u`` (Nesterov: ``r = r + (m*u + g)``)."""
        self._kernels.accumulate(gradient, self._velocity_for(momentum), self.accumulated, momentum, nesterov)

    def accumulate_select(
        self, gradient: Floats, momentum: float, nesterov: bool, threshold: float, indices: Indices, values: Floats
    ) -> int:
        """As ``accumulate``, and the elements of r at or above the threshold."""
        velocity = self._velocity_for(momentum)
        return self._kernels.accumulate_select(
            gradient, velocity, self.accumulated, momentum, nesterov, threshold, indices, values
        )

    def sent(self, decoded: SparseGradient) -> None:
        """``r[i] = r[i] - decoded; u[i] = 0`` at the sent positions."""
        values = self.accumulated[decoded.indices]
        self._kernels.update_residual(self.accumulated, self.velocity, decoded.indices, values, decoded.values)

    def sent_all(self, decoded: Floats) -> None:
        """``r = r - decoded``.

        The velocity stays: a dense stage is ordinary momentum, of which the ranks' mean is exact.
        """
        self._kernels.add_scaled(self.accumulated, decoded, -1.0)

    def drop_nonfinite(self) -> int:
        """See :meth:`ErrorFeedback.drop_nonfinite`."""
        return dropped(self.accumulated, self.velocity)

    def state_dict(self) -> dict[str, Floats]:
        """Return ``residual`` and, once there is one, ``velocity``."""
        state = {"residual": self.accumulated}
        if self.velocity is not None:
            state["velocity"] = self.velocity
        return state

    def load_state_dict(self, state: Mapping[str, Floats]) -> None:
        """Take over ``residual`` and ``velocity``."""
        numel = self.accumulated.size
        self.accumulated = restored(state, "residual", numel)
        self.velocity = restored(state, "velocity", numel) if "velocity" in state else None

    def _velocity_for(self, momentum: float) -> Floats | None:
        if self.velocity is None and momentum > 0.0:
            self.velocity = np.zeros_like(self.accumulated)
        return self.velocity
