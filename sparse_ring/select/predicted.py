"""A threshold predicted from the steps before, so that accumulation and selection are one pass over memory.

[ours] DGC samples a threshold each step; GradSA's text names per-layer thresholds but no formula. Here the threshold of the last
step is corrected by how many elements it let through, e = ln(count / wanted):

    ln(threshold) += gain * e + drift,   drift += 0.15 * gain * e

Under error feedback the residual is nearly flat below the threshold, so moving it by 1 % can stop or double the flow: the gain is
of the order of the density. The drift follows gradients that shrink or grow steadily, as under a learning-rate schedule.
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
_GAIN = 4.0  # times the density
_LARGEST_GAIN = 0.1  # over ln(1 / density), the slope of a tail that falls like exp(-x)
_DRIFT = 0.15  # of the gain
_LARGEST_ERROR = 2.0  # of ln(count / wanted): a flood or a drought is not a measurement
_LARGEST_DRIFT = 0.2  # of ln(threshold) a step


class PredictedThreshold(Selector):
    """About ``keep`` elements, never more than ``2 * keep + 16``, at least one unless all are zero.

    threshold
        What the next step will use; None before the first and when ``keep`` changed: then it is estimated from a strided
        sample of the accumulated array (exactly, for up to 4,096 elements). Where it lets too many through, or none, the
        ``keep`` largest are selected exactly, and the border between them is the next threshold.
    drift
        How much ln(threshold) is expected to change a step.
    """

    def __init__(self) -> None:
        self.threshold: float | None = None
        self.drift = 0.0
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
            sparse, self.threshold = select_largest(feedback.accumulated, keep, kernels, scratch)
            return sparse
        self._correct(threshold, count, numel)
        return scratch.sparse(count, numel)

    def _correct(self, threshold: float, count: int, numel: int) -> None:
        keep = self._keep
        # Small counts are noisy, so they move it less.
        gain = min(_LARGEST_GAIN / max(1.0, math.log(numel / keep)), _GAIN * keep / numel) * keep / (keep + 8.0)
        error = min(max(math.log(count / keep), -_LARGEST_ERROR), _LARGEST_ERROR)
        self.drift = min(max(self.drift + _DRIFT * gain * error, -_LARGEST_DRIFT), _LARGEST_DRIFT)
        self.threshold = min(max(threshold * math.exp(gain * error + self.drift), SMALLEST), _LARGEST)

    def state_dict(self) -> dict[str, float]:
        """Return ``threshold``, ``drift`` and ``keep``, once there is a threshold."""
        if self.threshold is None:
            return {}
        return {"threshold": self.threshold, "drift": self.drift, "keep": float(self._keep)}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Take over what ``state_dict`` returned."""
        self.threshold, self.drift = state.get("threshold"), state.get("drift", 0.0)
        self._keep = int(state.get("keep", 0))


def estimate_threshold(accumulated: Floats, keep: int) -> float:
    """Return a magnitude that about ``keep`` elements reach, from a strided sample; positive."""
    numel = accumulated.size
    size = max(_SAMPLE_ALL, _SAMPLE_KEPT * numel // keep)
    # An odd stride meets all columns of the matrices whose width is a power of two.
    sample = np.abs(accumulated[:: max(1, numel // size) | 1])
    rank = min(sample.size, max(1, round(keep * sample.size / numel)))
    return max(float(np.partition(sample, sample.size - rank)[sample.size - rank]), SMALLEST)
