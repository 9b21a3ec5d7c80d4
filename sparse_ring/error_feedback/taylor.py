"""What waits, moved along with the weights by a first-order approximation (Zheng et al., DC-ASGD, ICML 2017).

There, a gradient that is late is corrected by lambda * g*g * (w_now - w_then), with g*g for the diagonal of the Hessian. [ours] We
apply it to the residual, and step by step: the last update moved only the positions that some rank sent, so the correction costs
O(ranks * kept elements), and no snapshot of the weights is needed.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sparse_ring.error_feedback.base import Floats, restored
from sparse_ring.error_feedback.compensation import Applied, Compensation

# How much of itself the running mean keeps, and what keeps its root off zero.
_KEPT, _EPSILON = 0.95, 1e-7


class Taylor(Compensation):
    """``r[i] += strength * r[i]**2 * dw[i]`` with ``dw = -learning_rate * aggregate``, at the touched positions.

    No element moves by more than itself: beyond that the first order says nothing, and r would feed on itself. [ours]

    strength
        DC-ASGD's lambda.
    """

    def __init__(self, strength: float) -> None:
        self._strength = strength

    def apply(self, residual: Floats, applied: Applied) -> None:
        """See :meth:`Compensation.apply`; nothing after a dense stage, which leaves nothing waiting."""
        at = applied.touched
        if at is None or not at.size:
            return
        # Gathered before anything is stored: a position that comes twice gets the same value twice.
        waiting = residual[at]
        with np.errstate(all="ignore"):
            moved = np.float32(-applied.learning_rate) * applied.aggregate[at]
            correction = np.float32(self.strength(waiting)) * (waiting * waiting) * moved
            largest = np.abs(waiting)
            corrected = waiting + np.clip(correction, -largest, largest)
        residual[at] = np.where(np.isfinite(corrected), corrected, waiting)

    def strength(self, waiting: Floats) -> float:
        """Return lambda, for what waits at the touched positions."""
        return self._strength


class AdaptiveTaylor(Taylor):
    """As :class:`Taylor` with ``lambda = strength / sqrt(MS + 1e-7)``, MS a running mean of r**2 (DC-ASGD-a).

    [ours] MS is one number a parameter, over the touched positions (once for each rank that sent one), and starts at the first
    step's; DC-ASGD-a has one for each element.
    """

    def __init__(self, strength: float) -> None:
        super().__init__(strength)
        self.mean_square: np.float32 | None = None

    def strength(self, waiting: Floats) -> float:
        """Take note of what waits, and return lambda."""
        with np.errstate(over="ignore"):
            now = np.float32(np.square(waiting.astype(np.float64)).mean())
        if not np.isfinite(now):
            return 0.0
        if self.mean_square is None:
            self.mean_square = now
        else:
            self.mean_square = np.float32(_KEPT) * self.mean_square + np.float32(1.0 - _KEPT) * now
        return self._strength / float(np.sqrt(np.float64(self.mean_square) + _EPSILON))

    def state_dict(self) -> dict[str, Floats]:
        """Return ``mean_square`` (``float32[1]``), once there is one."""
        return {} if self.mean_square is None else {"mean_square": np.array([self.mean_square], dtype=np.float32)}

    def load_state_dict(self, state: Mapping[str, Floats], numel: int) -> None:
        """Take over ``mean_square``."""
        self.mean_square = restored(state, "mean_square", 1)[0] if "mean_square" in state else None
