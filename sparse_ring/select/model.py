"""One threshold for all parameters of an optimizer, so that those with large gradients send more of them.

[ours] The threshold wanted is the one that keeps as many elements of all parameters together as the density says. What it would
have been is known after a step only: each parameter collects candidates, the elements that reach a guess somewhat below the
threshold, and the border is the magnitude at which these are as many as wanted. The next threshold moves from the last one towards
that border. Only part of the way, because what was sent too much or too little moves the next border against it; what then remains
from step to step (residuals grow at first) is learnt and added.

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
# Candidates that the guess aims at, as a multiple of what is wanted.
_WANTED = 2.0
# ln(threshold / guess): at first, and its bounds. A miss doubles it.
_FIRST_MARGIN, _LEAST_MARGIN, _MOST_MARGIN = 0.1, 1e-3, 1.0
# How much of the way to the border the threshold moves, and how much of it is learnt as drift.
_PART, _LEARNT = 0.7, 0.5


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
        self._wanted = 0
        self._candidates: list[Floats] = []

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

    def note(self, keep: int, magnitudes: Floats) -> None:
        """Take in one parameter's share, and the magnitudes of its candidates, no more than it may send."""
        self._wanted += keep
        self._candidates.append(magnitudes)

    def settle(self) -> None:
        """End the step, if there was one: correct the threshold for the next."""
        if self._selected:
            candidates = np.concatenate([np.empty(0, dtype=np.float32), *self._candidates])
            if self.threshold == 0.0:
                self._move_to(_border(candidates, min(self._wanted, candidates.size)))
            else:
                self._correct(candidates)
        self._selected.clear()
        self._candidates.clear()
        self._wanted = 0

    def _correct(self, candidates: Floats) -> None:
        guess, wanted = self.guess, self._wanted
        if candidates.size < wanted:
            border, margin = guess, 2.0 * self.margin
        else:
            border, margin = _border(candidates, wanted), self.margin
            if not SMALLEST < border < math.inf:
                self.start()
                return
            below = math.log(border / guess)
            if below > 0.0 and candidates.size > wanted:
                # Where as many as wanted would have been candidates, half believed.
                margin = 0.5 * (margin + below * math.log(_WANTED) / math.log(candidates.size / wanted))
        self.margin = min(max(margin, _LEAST_MARGIN), _MOST_MARGIN)
        moved = math.log(border / self.threshold)
        self.drift += _LEARNT * moved
        self._move_to(self.threshold * math.exp(_PART * moved + self.drift))

    def _move_to(self, threshold: float) -> None:
        if SMALLEST < threshold < math.inf:
            self.threshold = threshold
        else:
            self.start()


def _border(candidates: Floats, wanted: int) -> float:
    """Return the ``wanted``-th largest; 0 for none."""
    return float(np.partition(candidates, candidates.size - wanted)[candidates.size - wanted]) if wanted else 0.0


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
            shared.note(keep, np.abs(sparse.values))
            if sparse.count > keep:
                largest_of(sparse.count, keep, kernels, scratch)
            return scratch.sparse(min(sparse.count, keep), numel)
        room = min(numel, _ROOM * most)
        scratch.reserve(room)
        indices, values = scratch.indices[: room + SPARE], scratch.values[: room + SPARE]
        count = feedback.accumulate_select(gradient, momentum, nesterov, shared.guess, indices, values)
        if count > room:
            count = select_largest(feedback.accumulated, most, kernels, scratch)[0].count
        magnitudes = np.abs(scratch.values[:count])
        shared.note(keep, magnitudes if count <= most else np.partition(magnitudes, count - most)[count - most :])
        reached = narrowed(count, shared.threshold, kernels, scratch)
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
