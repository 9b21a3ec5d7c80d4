"""Exactly the k largest magnitudes, mostly in the pass over memory that accumulates them.

[ours] The k-th largest magnitude (the *border*) moves little from step to step. So the pass that adds the gradient also collects
*candidates*: all elements that reach a guess somewhat below the next border. Where there are at least k of them, the k largest of
the candidates are the k largest of all. Otherwise they are looked for among all elements, which costs two more passes.

How far below: what is known after each step is that k elements reach the border and ``count`` reach the guess, which gives the
slope of the tail there, ln(count / k) / ln(border / guess), and with it the guess that twice as many would reach. Under error
feedback the tail may be so steep that a hundredth doubles the count, and flat a moment later; hence no constant would do.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from sparse_ring.error_feedback.base import ErrorFeedback
from sparse_ring.kernels.base import SPARE, Kernels
from sparse_ring.select.base import Floats, Scratch, Selector
from sparse_ring.sparse import SparseGradient

# Zeros are never worth sending: the smallest normal float32 keeps them below every threshold.
SMALLEST = float(np.finfo(np.float32).tiny)

# Candidates that a guess aims at, and that there is room for: multiples of k, or parts of all elements, which cost as little.
_WANTED, _ROOM = 2.0, 6
_WANTED_PART, _ROOM_PART = 256, 32
# Below this all passes together cost less than the bookkeeping.
_SMALL = 4096
_SMOOTHING = 0.3
# ln(border / guess): at first, and its bounds. A miss doubles it.
_FIRST_MARGIN, _LEAST_MARGIN, _MOST_MARGIN = 0.1, 1e-4, 2.0
# How many times the mean error of the guessed border the margin is at least.
_SAFETY = 2.5


class ExactTopK(Selector):
    """The ``keep`` largest magnitudes; of equal ones at the border those with the lowest index.

    What it remembers makes it fast and changes no result, so it is not part of a checkpoint.
    """

    def __init__(self) -> None:
        self._keep = 0
        self._border = 0.0
        self._drift = 0.0
        self._margin = _FIRST_MARGIN
        self._error = 0.0

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
        """See :meth:`Selector.select`; fewer than ``keep`` only where fewer are not zero."""
        numel = gradient.size
        if self._border == 0.0 or keep != self._keep or numel <= _SMALL:
            feedback.accumulate(gradient, momentum, nesterov)
            sparse, border = select_largest(feedback.accumulated, keep, kernels, scratch)
            self._start(keep, border)
            return sparse
        guess = max(self._border * math.exp(self._drift - self._margin), SMALLEST)
        room = min(numel, max(_ROOM * keep, numel // _ROOM_PART) + 16)
        scratch.reserve(room)
        indices, values = scratch.indices[: room + SPARE], scratch.values[: room + SPARE]
        count = feedback.accumulate_select(gradient, momentum, nesterov, guess, indices, values)
        if keep <= count <= room:
            border = largest_of(count, keep, kernels, scratch)
            self._learn(border, guess, count, numel)
            return scratch.sparse(keep, numel)
        if count < keep and guess == SMALLEST:
            return scratch.sparse(count, numel)
        sparse, border = select_largest(feedback.accumulated, keep, kernels, scratch)
        self._learn(border, guess, count, numel)
        return sparse

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Forget what was learnt of another residual; there is no other state."""
        super().load_state_dict(state)
        self._border = 0.0

    def _start(self, keep: int, border: float) -> None:
        # What has overflowed is dropped from the residual, so it says nothing of the next border.
        border = border if math.isfinite(border) else 0.0
        self._keep, self._border, self._drift, self._margin, self._error = keep, border, 0.0, _FIRST_MARGIN, 0.0

    def _learn(self, border: float, guess: float, count: int, numel: int) -> None:
        """Correct the next guess by where the border really was and how many elements reached this one."""
        if not math.isfinite(border):
            self._start(self._keep, border)
            return
        moved = math.log(border / self._border)
        error = moved - self._drift
        self._error += _SMOOTHING * (abs(error) - self._error)
        self._drift += _SMOOTHING * error
        self._border = border
        below = math.log(border / guess)
        if count <= self._keep or below <= 0.0:
            margin = 2.0 * self._margin if count < self._keep else self._margin
        else:
            # The margin at which as many as wanted would have reached the guess, half believed.
            wanted = max(_WANTED, numel / _WANTED_PART / self._keep)
            margin = 0.5 * (self._margin + below * math.log(wanted) / math.log(count / self._keep))
        self._margin = min(max(margin, _SAFETY * self._error, _LEAST_MARGIN), _MOST_MARGIN)


def largest_of(count: int, keep: int, kernels: Kernels, scratch: Scratch) -> float:
    """Leave the ``keep`` largest of ``count`` (>= keep) candidates in the scratch, in index order; returns the border."""
    values = scratch.values[:count]
    border = max(kernels.kth_magnitude(values, keep, scratch.magnitudes(count)), SMALLEST)
    if count == keep:
        return border
    left = narrowed(count, border, kernels, scratch)
    _drop_ties(scratch.indices[:left], scratch.values[:left], border, left - keep)
    return border


def narrowed(count: int, threshold: float, kernels: Kernels, scratch: Scratch) -> int:
    """Leave those of ``count`` candidates in the scratch that reach a threshold, in index order; returns how many."""
    positions, chosen = scratch.second(count)
    left = kernels.select(scratch.values[:count], threshold, positions, chosen)
    # Positions rise, so what is written lies behind what is still to be read.
    np.take(scratch.indices, positions[:left], out=scratch.indices[:left], mode="clip")
    scratch.values[:left] = chosen[:left]
    return left


def select_largest(accumulated: Floats, keep: int, kernels: Kernels, scratch: Scratch) -> tuple[SparseGradient, float]:
    """Return the ``keep`` largest magnitudes of ``accumulated`` as views of the scratch, and the border."""
    numel = accumulated.size
    threshold = max(kernels.kth_magnitude(accumulated, keep, scratch.magnitudes(numel)), SMALLEST)
    scratch.reserve(keep)
    count = kernels.select(accumulated, threshold, scratch.indices, scratch.values)
    if count > keep:
        scratch.reserve(count)
        count = kernels.select(accumulated, threshold, scratch.indices, scratch.values)
        count = _drop_ties(scratch.indices[:count], scratch.values[:count], threshold, count - keep)
    return scratch.sparse(count, numel), threshold


def _drop_ties(indices: NDArray[np.uint32], values: Floats, threshold: float, surplus: int) -> int:
    """Close the gaps, in place, that the last ``surplus`` elements at the threshold leave; return the new count."""
    if not surplus:
        return len(values)
    ties = np.flatnonzero(np.abs(values) == np.float32(threshold))
    kept = np.ones(len(values), dtype=bool)
    kept[ties[-surplus:]] = False
    count = int(kept.sum())
    indices[:count] = indices[kept]
    values[:count] = values[kept]
    return count
