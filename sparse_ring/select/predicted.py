"""A threshold predicted from the steps before, so that accumulation and selection are one pass over memory.

[ours] DGC samples a threshold each step; GradSA's text names per-layer thresholds but no formula. Here the threshold of
the last step is corrected by how many elements it let through: with a tail of the magnitudes that falls like
exp(-x/s), d ln(count) / d ln(threshold) is about ln(density), about -4.6 at 1 % and -6.9 at 0.1 %.
"""

from __future__ import annotations

import math

import numpy as np

from sparse_ring.error_feedback.base import ErrorFeedback
from sparse_ring.kernels.base import SPARE, Kernels
from sparse_ring.select.base import Floats, Scratch, Selector
from sparse_ring.select.topk import SMALLEST, select_largest
from sparse_ring.sparse import SparseGradient

# Below this an exact selection is as cheap as a sample.
_SAMPLE_ALL = 4096
# Elements of the sample that should lie above the threshold: their number is known to about 1/sqrt(64).
_SAMPLE_KEPT = 64
_LARGEST = float(np.finfo(np.float32).max)


class PredictedThreshold(Selector):
    """About ``keep`` elements, never more than ``2 * keep + 16``, at least one unless all are zero.

    threshold
        What the next step will use; None before the first and when ``keep`` changed: then it is estimated from a strided
        sample of the accumulated array (exactly, for up to 4,096 elements).
    """

    def __init__(self) -> None:
        self.threshold: float | None = None
        self._keep = 0

    def select(
        self,
        feedback: ErrorFeedback,
        gradient: Floats,
        momentum: float,
        nesterov: bool,
        keep: int,
        kernels: Kernels,
        scratch: Scratch,
    ) -> SparseGradient:
        """See :meth:`Selector.select`."""
        numel = gradient.size
        limit = min(numel, 2 * keep + 16)
        scratch.reserve(limit)
        indices, values = scratch.indices[: limit + SPARE], scratch.values[: limit + SPARE]
        if self.threshold is None or keep != self._keep:
            feedback.accumulate(gradient, momentum, nesterov)
            threshold = estimate_threshold(feedback.accumulated, keep)
            count = kernels.select(feedback.accumulated, threshold, indices, values)
        else:
            threshold = self.threshold
            count = feedback.accumulate_select(gradient, momentum, nesterov, threshold, indices, values)
        self._keep = keep
        if count > limit or count == 0:
            sparse, threshold = select_largest(feedback.accumulated, keep if count else 1, kernels, scratch)
            # After a miss this large the next prediction starts from a fresh sample.
            self.threshold = None
            return sparse
        self.threshold = corrected_threshold(threshold, count, keep, numel)
        return scratch.sparse(count, numel)

    def state_dict(self) -> dict[str, float]:
        """Return ``threshold`` and ``keep``, once there is a threshold."""
        return {} if self.threshold is None else {"threshold": self.threshold, "keep": float(self._keep)}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Take over ``threshold`` and ``keep``."""
        self.threshold = state.get("threshold")
        self._keep = int(state.get("keep", 0))


def estimate_threshold(accumulated: Floats, keep: int) -> float:
    """Return a magnitude that about ``keep`` elements reach, from a strided sample; positive."""
    numel = accumulated.size
    size = max(_SAMPLE_ALL, _SAMPLE_KEPT * numel // keep)
    sample = np.abs(accumulated[:: max(1, numel // size)])
    rank = min(sample.size, max(1, round(keep * sample.size / numel)))
    return max(float(np.partition(sample, sample.size - rank)[sample.size - rank]), SMALLEST)


def corrected_threshold(threshold: float, count: int, keep: int, numel: int) -> float:
    """Return the next step's threshold after ``count`` elements passed where ``keep`` were wanted.

    Half of a Newton step on ln(count): what stays in the residual answers a change of threshold a second time, one step
    later. Small counts are noisy, so they move it less.
    """
    slope = max(1.0, math.log(numel / keep))
    gain = 0.5 / slope * keep / (keep + 8.0)
    return min(max(threshold * math.pow(count / keep, gain), SMALLEST), _LARGEST)
