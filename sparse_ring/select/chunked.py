"""The largest magnitudes of every 4,096 elements."""

from __future__ import annotations

from sparse_ring.error_feedback.base import ErrorFeedback
from sparse_ring.kernels.base import Kernels
from sparse_ring.select.base import Floats, Scratch, Selector
from sparse_ring.sparse import SparseGradient


class LargestOfChunks(Selector):
    """In each chunk of 4,096 elements the same number of the largest; of equal ones at the border those with the lowest index.

    A chunk stays in the first-level cache, so this is a pass over memory whatever the gradients are like, and no part of a
    parameter goes without. ``keep`` is the count of all chunks together.

    chunk_keep
        How many of a whole chunk's elements; a shorter last chunk keeps in proportion, at least one.
    """

    def __init__(self, chunk_keep: int) -> None:
        self._chunk_keep = chunk_keep

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
        """See :meth:`Selector.select`; fewer than ``keep`` only where chunks have fewer that are not zero."""
        feedback.accumulate(gradient, momentum, nesterov)
        scratch.reserve(keep)
        count = kernels.select_chunks(feedback.accumulated, self._chunk_keep, scratch.indices, scratch.values)
        return scratch.sparse(count, gradient.size)
