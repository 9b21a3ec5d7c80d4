"""One threshold for all parameters of an optimizer, so that those with large gradients send more of them.

[ours] The threshold wanted is the one that keeps as many elements of all parameters together as the density says. What it would have
been is known after a step only, so the last step's counts correct the next step's. How far a threshold has to move for a wanted
count is known from the counts at two thresholds, a guess somewhat below and the threshold itself: the logarithm of the count falls
about linearly with that of the threshold. How far it moves by itself from step to step (residuals grow at first) is learnt, too.

Ranks may have different thresholds: receivers need none.
"""

from __future__ import annotations

import math

import numpy as np

from sparse_ring.error_feedback.base import ErrorFeedback
from sparse_ring.kernels.base import SPARE, Kernels
from sparse_ring.select.base import Floats, Scratch, Selector
from sparse_ring.select.topk import SMALLEST, largest_of, narrowed, select_largest
from sparse_ring.sparse import SparseGradient

# A parameter sends at most so many times its share, so that messages stay bounded.
MOST_SHARES = 8
# Candidates that a parameter has room for, as multiples of what it sends at most.
_ROOM = 2
# ln(threshold / guess): at first, and its bounds.
_FIRST_MARGIN, _LEAST_MARGIN, _MOST_MARGIN = 0.1, 1e-3, 0.5
# Bounds of -d ln(count) / d ln(threshold), and of how far one step may move the threshold's logarithm.
_LEAST_SLOPE, _MOST_SLOPE, _MOST_MOVE = 0.5, 200.0, 1.0
_SMOOTHING = 0.5


class ModelThreshold:
    """The threshold that parameters share on one rank, and how it follows the density.

    A step is over when a parameter comes again: then it is settled what the next threshold is. So parameters may come in any
    order, and some may be left out.

    threshold
        0 where none is known: then each parameter selects exactly its share.
    """

    def __init__(self) -> None:
        self.threshold, self.drift, self.margin = 0.0, 0.0, _FIRST_MARGIN
        self._selected: set[ModelSelector] = set()
        self._wanted = self._reached = self._candidates = 0
        self._pool: list[Floats] = []
        self._pool_wanted = 0

    @property
    def guess(self) -> float:
        """The threshold of candidates."""
        return max(self.threshold * math.exp(-self.margin), SMALLEST)

    def enter(self, parameter: ModelSelector) -> None:
        """A parameter is about to select; settles the last step where it is the first to come again."""
        if parameter in self._selected:
            self.settle()
        self._selected.add(parameter)

    def start(self) -> None:
        """Forget the threshold."""
        self.threshold, self.drift, self.margin = 0.0, 0.0, _FIRST_MARGIN

    def note(self, keep: int, reached: int, candidates: int) -> None:
        """Count one parameter's step: its share, and how many of what it may send reach the threshold and the guess."""
        self._wanted, self._reached, self._candidates = (
            self._wanted + keep, self._reached + reached, self._candidates + candidates,
        )  # fmt: skip

    def note_first(self, keep: int, magnitudes: Floats) -> None:
        """Take in all that a parameter might send, where no threshold is known."""
        self._pool.append(magnitudes)
        self._pool_wanted += keep

    def settle(self) -> None:
        """End the step, if there was one: correct the threshold for the next."""
        if self._pool:
            self._first_threshold()
        elif self._wanted:
            self._correct()
        self._selected.clear()
        self._pool, self._pool_wanted = [], 0
        self._wanted = self._reached = self._candidates = 0

    def _first_threshold(self) -> None:
        pool = np.concatenate(self._pool)
        keep = min(self._pool_wanted, pool.size)
        self.start()
        if keep:
            self._move_to(float(np.partition(pool, pool.size - keep)[pool.size - keep]))

    def _correct(self) -> None:
        reached, candidates = max(self._reached, 0.5), max(self._candidates, 1)
        slope = math.log(candidates / reached) / self.margin if candidates > reached else _LEAST_SLOPE
        slope = min(max(slope, _LEAST_SLOPE), _MOST_SLOPE)
        moved = math.log(reached / self._wanted) / slope
        moved = min(max(moved, -_MOST_MOVE), _MOST_MOVE)
        self.drift += _SMOOTHING * moved
        # Where about twice as many as wanted are candidates, half believed.
        margin = 0.5 * (self.margin + math.log(2.0) / slope)
        self.margin = min(max(margin, _LEAST_MARGIN), _MOST_MARGIN)
        self._move_to(self.threshold * math.exp(moved + self.drift))

    def _move_to(self, threshold: float) -> None:
        if SMALLEST < threshold < math.inf:
            self.threshold = threshold
        else:
            self.start()


class ModelSelector(Selector):
    """One parameter's part in it; ``keep`` is its share.

    shared
        The same for all parameters that have one threshold.
    """

    def __init__(self, shared: ModelThreshold) -> None:
        self._shared = shared
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
        """See :meth:`Selector.select`; none where none reaches the threshold, and up to ``most`` where many do."""
        shared, numel, most = self._shared, gradient.size, self.most(keep, gradient.size)
        shared.enter(self)
        if self._keep not in (0, keep):
            # Another stage of the warm-up.
            shared.start()
        self._keep = keep
        if shared.threshold == 0.0:
            feedback.accumulate(gradient, momentum, nesterov)
            sparse, _ = select_largest(feedback.accumulated, most, kernels, scratch)
            shared.note_first(keep, np.abs(sparse.values))
            if sparse.count > keep:
                largest_of(sparse.count, keep, kernels, scratch)
            return scratch.sparse(min(sparse.count, keep), numel)
        room = min(numel, _ROOM * most)
        scratch.reserve(room)
        indices, values = scratch.indices[: room + SPARE], scratch.values[: room + SPARE]
        candidates = feedback.accumulate_select(gradient, momentum, nesterov, shared.guess, indices, values)
        if candidates <= room:
            reached = narrowed(candidates, shared.threshold, kernels, scratch)
        else:
            reached = kernels.select(feedback.accumulated, shared.threshold, indices, values)
        shared.note(keep, min(reached, most), min(candidates, most))
        if reached > room:
            return select_largest(feedback.accumulated, most, kernels, scratch)[0]
        if reached > most:
            largest_of(reached, most, kernels, scratch)
        return scratch.sparse(min(reached, most), numel)

    def most(self, keep: int, numel: int) -> int:
        """See :meth:`Selector.most`."""
        return min(numel, MOST_SHARES * keep)

    def state_dict(self) -> dict[str, float]:
        """Return the share, and the shared threshold with what is known of it. Ends the step."""
        self._shared.settle()
        return {
            "keep": self._keep,
            "threshold": self._shared.threshold,
            "drift": self._shared.drift,
            "margin": self._shared.margin,
        }

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Take over what ``state_dict`` returned, for all parameters that share the threshold."""
        self._shared.settle()
        self._shared.start()
        self._keep = int(state.get("keep", 0))
        if state:
            shared = self._shared
            shared.threshold, shared.drift, shared.margin = state["threshold"], state["drift"], state["margin"]
