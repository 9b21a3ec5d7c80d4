"""Exactly the k largest magnitudes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sparse_ring.error_feedback.base import ErrorFeedback
from sparse_ring.kernels.base import Kernels
from sparse_ring.select.base import Floats, Scratch, Selector
from sparse_ring.sparse import SparseGradient

# Zeros are never worth sending: the smallest normal float32 keeps them below every threshold.
SMALLEST = float(np.finfo(np.float32).tiny)


class ExactTopK(Selector):
    """The ``keep`` largest magnitudes; of equal ones at the border those with the lowest index."""

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
        feedback.accumulate(gradient, momentum, nesterov)
        sparse, _ = select_largest(feedback.accumulated, keep, kernels, scratch)
        return sparse


def select_largest(accumulated: Floats, keep: int, kernels: Kernels, scratch: Scratch) -> tuple[SparseGradient, float]:
    """Return the ``keep`` largest magnitudes of ``accumulated`` as views of the scratch, and the threshold between."""
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
    ties = np.flatnonzero(np.abs(values) == np.float32(threshold))
    kept = np.ones(len(values), dtype=bool)
    kept[ties[-surplus:]] = False
    count = int(kept.sum())
    indices[:count] = indices[kept]
    values[:count] = values[kept]
    return count
