"""No error feedback: what is not sent of a gradient is gone. For codes that are right on average."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sparse_ring.error_feedback.base import ErrorFeedback, Floats, Indices
from sparse_ring.kernels.base import Kernels
from sparse_ring.sparse import SparseGradient


class Memoryless(ErrorFeedback):
    """Keeps nothing; ``accumulated`` is the gradient of this step. Exempt from conservation.

    clip_sigmas
        Elements further from 0 than this many standard deviations are cut off there (TernGrad, Wen et al., NIPS 2017,
        section 3.3, with 2.5); None: none are.
    """

    def __init__(self, numel: int, kernels: Kernels, clip_sigmas: float | None = None) -> None:
        self.accumulated: Floats = np.zeros(numel, dtype=np.float32)
        self._kernels, self._clip_sigmas = kernels, clip_sigmas

    def accumulate(self, gradient: Floats, momentum: float, nesterov: bool) -> None:
        """Take the gradient's place."""
        if self._clip_sigmas is None:
            np.copyto(self.accumulated, gradient)
            return
        bound = np.float32(self._clip_sigmas * float(gradient.std(dtype=np.float64)))
        np.clip(gradient, -bound, bound, out=self.accumulated)

    def accumulate_select(
        self, gradient: Floats, momentum: float, nesterov: bool, threshold: float, indices: Indices, values: Floats
    ) -> int:
        """As ``accumulate``, and the elements at or above the threshold."""
        self.accumulate(gradient, momentum, nesterov)
        return self._kernels.select(self.accumulated, threshold, indices, values)

    def sent(self, decoded: SparseGradient) -> None:
        """Keep nothing."""

    def sent_all(self, decoded: Floats) -> None:
        """Keep nothing."""

    def residual_norm(self) -> float:
        """Return 0: nothing waits."""
        return 0.0

    def drop_nonfinite(self) -> int:
        """Return 0: nothing adds up from step to step."""
        return 0

    def state_dict(self) -> dict[str, Floats]:
        """Return nothing."""
        return {}

    def load_state_dict(self, state: Mapping[str, Floats]) -> None:
        """Take nothing over."""
