"""Everything at or above a threshold that is given, as long as there is not too much of it."""

from __future__ import annotations

from sparse_ring.error_feedback.base import ErrorFeedback
from sparse_ring.kernels.base import SPARE, Kernels
from sparse_ring.select.base import Floats, Scratch, Selector
from sparse_ring.select.topk import select_largest
from sparse_ring.sparse import SparseGradient


class FixedThreshold(Selector):
    """All elements with ``|accumulated| >= threshold``; where more than ``keep`` are, the ``keep`` largest.

    threshold
        Absolute, above 0.
    """

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold

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
        """See :meth:`Selector.select`; none where none reaches the threshold."""
        scratch.reserve(keep)
        indices, values = scratch.indices[: keep + SPARE], scratch.values[: keep + SPARE]
        count = feedback.accumulate_select(gradient, momentum, nesterov, self._threshold, indices, values)
        if count <= keep:
            return scratch.sparse(count, gradient.size)
        return select_largest(feedback.accumulated, keep, kernels, scratch)[0]
