"""Momentum correction: the velocity is accumulated locally, before the exchange (Lin et al., DGC, ICLR 2018, sections 3.1-3.2).

u = m*u + g,  r = r + u;  after sending, r -= decoded and u = 0 at the sent positions (momentum factor masking).
GradSA uses the same state; see ``docs/algorithms.md`` for what of that is the paper's and what our reconstruction.

With Nesterov's momentum r = r + (m*u + g). DGC's authors write it u' = (u' + g) * m, r = r + u' + g, which is the same in exact
arithmetic: their u' is our m*u throughout, also where both are set to 0.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sparse_ring.error_feedback.base import Floats, Indices, dropped, restored
from sparse_ring.error_feedback.compensation import Compensation
from sparse_ring.error_feedback.residual import Residual
from sparse_ring.kernels.base import Kernels
from sparse_ring.sparse import SparseGradient


class MomentumResidual(Residual):
    """Keeps a residual and a velocity; the optimizer must not apply its own momentum to this parameter.

    The velocity's memory is taken at the first step with a momentum above 0; without one this is plain error feedback.
    """

    def __init__(self, numel: int, kernels: Kernels, compensations: tuple[Compensation, ...] = ()) -> None:
        super().__init__(numel, kernels, compensations)
        self.velocity: Floats | None = None

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
        """``r[i] = r[i] - decoded; u[i] = 0`` at the sent positions.

        (After ``sent_all`` the velocity stays: a dense stage is ordinary momentum, of which the ranks' mean is exact.)
        """
        self._take_off(decoded, self.velocity)

    def drop_nonfinite(self) -> int:
        """See :meth:`ErrorFeedback.drop_nonfinite`."""
        return dropped(self.accumulated, self.velocity)

    def state_dict(self) -> dict[str, Floats]:
        """Return what :class:`Residual` does and, once there is one, ``velocity``."""
        state = super().state_dict()
        if self.velocity is not None:
            state["velocity"] = self.velocity
        return state

    def load_state_dict(self, state: Mapping[str, Floats]) -> None:
        """Take over what :class:`Residual` does, and ``velocity``."""
        super().load_state_dict(state)
        self.velocity = restored(state, "velocity", self.accumulated.size) if "velocity" in state else None

    def _velocity_for(self, momentum: float) -> Floats | None:
        if self.velocity is None and momentum > 0.0:
            self.velocity = np.zeros_like(self.accumulated)
        return self.velocity
