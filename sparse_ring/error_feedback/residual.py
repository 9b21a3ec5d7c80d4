"""Plain error feedback: r = r + g, and what was not sent stays (Seide et al., Interspeech 2014; Stich et al., NeurIPS 2018)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from sparse_ring.error_feedback.base import ErrorFeedback, Floats, Indices, dropped, restored
from sparse_ring.error_feedback.compensation import Applied, Compensation
from sparse_ring.kernels.base import Kernels
from sparse_ring.sparse import SparseGradient

_NOTHING: Indices = np.zeros(0, dtype=np.uint32)


class Residual(ErrorFeedback):
    """Keeps a residual; momentum stays with the optimizer, after the exchange.

    compensations
        How what waits is made up for being stale, in this order; fresh ones.
    """

    def __init__(self, numel: int, kernels: Kernels, compensations: tuple[Compensation, ...] = ()) -> None:
        self.accumulated: Floats = np.zeros(numel, dtype=np.float32)
        self._kernels = kernels
        self._compensations = compensations
        self.compensates = bool(compensations)
        # Positions of what was sent and not aggregated yet; None: all.
        self._sent: Indices | None = _NOTHING

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
        self._take_off(decoded, None)

    def sent_all(self, decoded: Floats) -> None:
        """``r = r - decoded``."""
        self._kernels.add_scaled(self.accumulated, decoded, -1.0)
        self._sent = None

    def _take_off(self, decoded: SparseGradient, velocity: Floats | None) -> None:
        values = self.accumulated[decoded.indices]
        self._kernels.update_residual(self.accumulated, velocity, decoded.indices, values, decoded.values)
        if self.compensates:
            self._sent = decoded.indices

    def aggregated(
        self,
        aggregate: Floats,
        touched: Sequence[Indices],
        learning_rate: float,
        momentum: float = 0.0,
        part: float = 1.0,
    ) -> None:
        """Let the compensations change what waits; a rank that has sent nothing since the last time sent nothing in this step."""
        positions = np.concatenate(touched) if touched else None
        sent, self._sent = self._sent, _NOTHING
        applied = Applied(aggregate, positions, sent, learning_rate, momentum, part)
        for compensation in self._compensations:
            compensation.apply(self.accumulated, applied)

    def drop_nonfinite(self) -> int:
        """See :meth:`ErrorFeedback.drop_nonfinite`."""
        return dropped(self.accumulated)

    def state_dict(self) -> dict[str, Floats]:
        """Return ``residual``, and what compensations keep."""
        state = {"residual": self.accumulated}
        for compensation in self._compensations:
            state.update(compensation.state_dict())
        return state

    def load_state_dict(self, state: Mapping[str, Floats]) -> None:
        """Take over ``residual``, and what compensations keep."""
        numel = self.accumulated.size
        self.accumulated = restored(state, "residual", numel)
        for compensation in self._compensations:
            compensation.load_state_dict(state, numel)
