"""The largest magnitudes by a threshold that a sample says (Lin et al., DGC, ICLR 2018, section 5)."""

from __future__ import annotations

import math

import numpy as np

from sparse_ring.error_feedback.base import ErrorFeedback
from sparse_ring.kernels.base import SPARE, Kernels
from sparse_ring.select.base import Floats, Scratch, Selector
from sparse_ring.select.topk import SMALLEST, largest_of, select_largest
from sparse_ring.sparse import SparseGradient

# Every 101st element is looked at, about 1 %; a prime, so that samples do not lie in a few columns of a matrix.
STRIDE = 101
# Parts of the wanted count that are taken as they come, as in the authors' code.
LEAST, MOST = 0.8, 1.3
# Elements of a sample that should reach the threshold. [ours] Where a hundredth has fewer, a larger part is looked at.
_LEAST_HITS = 16
_TRIES = 10
# How many times the wanted count may reach the threshold before an exact selection among all costs less.
_ROOM = 6


class SampledTopK(Selector):
    """From 0.8 to 1.3 times ``keep`` of the largest magnitudes.

    The threshold is that of the largest of a strided sample. Where fewer than 0.8 ``keep`` reach it, it is lowered by a fifth and
    tried again, up to ten times; where more than 1.3 ``keep`` do, the ``keep`` largest of them are taken. [ours] Where that fails
    it is an exact selection, and the sample starts elsewhere each step, in turn; where to start next is the state.
    """

    def __init__(self) -> None:
        self._turn = 0

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
        feedback.accumulate(gradient, momentum, nesterov)
        accumulated, numel = feedback.accumulated, gradient.size
        stride = min(STRIDE, keep // _LEAST_HITS)
        if stride <= 1:
            return select_largest(accumulated, keep, kernels, scratch)[0]
        sample = np.ascontiguousarray(accumulated[self._turn % stride :: stride])
        self._turn += 1
        hits = max(1, round(keep * sample.size / numel))
        threshold = max(kernels.kth_magnitude(sample, hits, scratch.magnitudes(sample.size)), SMALLEST)
        room = min(numel, _ROOM * keep + 16)
        scratch.reserve(room)
        indices, values = scratch.indices[: room + SPARE], scratch.values[: room + SPARE]
        least, most, count = math.ceil(LEAST * keep), self.most(keep, numel), 0
        for _ in range(_TRIES):
            count = kernels.select(accumulated, threshold, indices, values)
            if count >= least or threshold == SMALLEST:
                break
            threshold = max(LEAST * threshold, SMALLEST)
        if count <= most and (count >= least or threshold == SMALLEST):
            return scratch.sparse(count, numel)
        if most < count <= room:
            largest_of(count, keep, kernels, scratch)
            return scratch.sparse(keep, numel)
        return select_largest(accumulated, keep, kernels, scratch)[0]

    def most(self, keep: int, numel: int) -> int:
        """See :meth:`Selector.most`."""
        return min(numel, max(keep, math.floor(MOST * keep)))

    def state_dict(self) -> dict[str, float]:
        """Return where the next sample starts."""
        return {"turn": self._turn}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Take over where the next sample starts."""
        self._turn = int(state.get("turn", 0))
