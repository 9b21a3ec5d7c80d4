"""Momentum of what all ranks have applied, in place of each rank's own velocity."""

from __future__ import annotations

import numpy as np

from sparse_ring.error_feedback.base import Floats
from sparse_ring.error_feedback.compensation import Applied, Compensation
from sparse_ring.kernels.base import Kernels


class GlobalMomentum(Compensation):
    """``r[i] += momentum * aggregate[i]`` at the touched positions, under Sum 1/P of that. [ours]

    Each rank takes the last update, ``momentum * (w_before - w_now) / learning_rate``, into its next gradient (as in Zhao et al.,
    Global Momentum Compression, 2019, where the update comes from a server), so that nobody keeps a velocity: half of the state of
    local momentum. At density 1 the ranks' mean is heavy-ball momentum.
    """

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels

    def apply(self, residual: Floats, applied: Applied) -> None:
        """See :meth:`Compensation.apply`."""
        at = applied.touched
        factor = applied.momentum * applied.part
        if factor == 0.0:
            return
        if at is None:
            self._kernels.add_scaled(residual, applied.aggregate, factor)
            return
        with np.errstate(all="ignore"):
            residual[at] = residual[at] + applied.aggregate[at] * np.float32(factor)
