"""A parameter that travels as one frame of a message: accumulate → select → encode, and decode → aggregate on the other side.

Read this first, it is the way of the paper. What lies between, the exchange of several parameters' frames as one message, is
``gathered.py``; what makes the frame is ``selected.py`` (positions and values) or ``whole.py`` (every element).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from sparse_ring.encode import INDEX_CODES, VALUE_CODES
from sparse_ring.engine.operation import Operation
from sparse_ring.error_feedback import ErrorFeedback
from sparse_ring.errors import MessageError
from sparse_ring.gradient.base import Decoded, Floats, OptimizerStep, ParameterPipeline, Pipeline
from sparse_ring.gradient.gathered import GatheredGradient
from sparse_ring.message import Frame
from sparse_ring.observe.metrics import Metrics
from sparse_ring.recipe import MessageRecipe
from sparse_ring.sparse import SparseGradient


class FramedParameter(ParameterPipeline):
    """The state of one parameter and the two halves of its way through messages."""

    def __init__(
        self,
        shared: Pipeline,
        recipe: MessageRecipe,
        number: int,
        name: str,
        shape: tuple[int, ...],
        key: str | None = None,
    ) -> None:
        super().__init__(shared, recipe, number, name, shape, key)
        # Frame bounds by what ``detail`` says.
        self.bounds: dict[str, int] = {}

    def operation(self, gradient: Floats, step: OptimizerStep, absent: bool = False) -> Operation:
        """See :meth:`ParameterPipeline.operation`."""
        return GatheredGradient(self, gradient, step, absent)

    @property
    @abstractmethod
    def final_bytes(self) -> int:
        """About what its frame takes once any warm-up is over; equal on all ranks, which form buckets by it."""

    @abstractmethod
    def frame_bound(self, step: int) -> int:
        """Return what its frame takes at most at an optimizer step, in bytes; the same on all ranks."""

    @property
    def shares_unit(self) -> bool:
        """Whether ``compress`` needs the largest of all ranks' units, which ``begin`` returns."""
        return False

    def accumulate_finite(self, gradient: Floats, step: OptimizerStep) -> float:
        """Accumulate a finite gradient; return the unit, at least 0. Only where ``shares_unit``."""
        raise NotImplementedError

    @abstractmethod
    def compress_finite(
        self, gradient: Floats, step: OptimizerStep, metrics: Metrics, unit: float | None = None
    ) -> None:
        """As ``compress``, for a gradient that is finite."""

    def begin(self, gradient: Floats, step: OptimizerStep) -> float:
        """Take in this rank's gradient, where ``shares_unit``; return its unit for the ranks to agree on."""
        return self.accumulate_finite(gradient, step) if self.shared.kernels.all_finite(gradient) else 0.0

    def compress(self, gradient: Floats, step: OptimizerStep, metrics: Metrics, unit: float | None = None) -> None:
        """Take in this rank's gradient (``float32[numel]``) and add one frame to the shared message.

        A gradient that is not finite leaves the state untouched and becomes an empty, flagged frame. What is sent leaves the
        state only in ``sent``, once all ranks' frames have been read. ``unit``: what ranks agreed on after ``begin``, which has
        taken in the gradient already.
        """
        if self.shared.kernels.all_finite(gradient):
            self.compress_finite(gradient, step, metrics, unit)
        else:
            self.add_nonfinite(metrics)

    def overflowed(self, feedback: ErrorFeedback, metrics: Metrics) -> bool:
        """Return whether what was accumulated is beyond float32; then that is dropped, and the frame says so."""
        if self.shared.kernels.all_finite(feedback.accumulated):
            return False
        self.drop_overflow()
        self.add_nonfinite(metrics)
        return True

    def add_nonfinite(self, metrics: Metrics) -> None:
        """Add the empty frame that says: this rank's gradient is not finite."""
        self.shared.writer.add_nonfinite(self.number)
        metrics.nonfinite_frames += 1

    def sent(self, decoded: Decoded) -> None:
        """Take note of what all ranks have read of this one: ``decoded`` is what ``decode`` made of its own frame."""
        if self.feedback is None or decoded is None:
            return
        if isinstance(decoded, SparseGradient):
            self.feedback.sent(decoded)
        else:
            self.feedback.sent_all(decoded)

    def decode(self, frame: Frame) -> Decoded:
        """Return what a rank sent: kept elements, a dense array, or None where its gradient was not finite.

        Everything is checked before the result is used; raises MessageError with the reason.
        """
        return decoded(frame, self.number, self.numel, self.shared)

    def aggregate(self, decoded: Sequence[Decoded], step: OptimizerStep, out: Floats) -> None:
        """``out = sum over ranks of decoded * scale``, added in rank order, so that every rank gets the same bits.

        ``scale`` is 1/P under Average.
        """
        kernels = self.shared.kernels
        scale = 1.0 / len(decoded) if step.average else 1.0
        out.fill(0.0)
        for part in decoded:
            if isinstance(part, SparseGradient):
                kernels.scatter_add(out, part.indices, part.values, scale)
            elif part is not None:
                kernels.add_scaled(out, part, scale)

    def compensate(self, decoded: Sequence[Decoded], step: OptimizerStep, aggregate: Floats) -> None:
        """Tell error feedback that compensates for stale gradients what the optimizer will apply; after ``sent``."""
        if self.feedback is not None and self.feedback.compensates:
            touched = [part.indices for part in decoded if isinstance(part, SparseGradient)]
            self.tell_aggregate(aggregate, touched, step)


def decoded(frame: Frame, number: int, numel: int, shared: Pipeline) -> Decoded:
    """Return what a frame of parameter ``number`` holds of ``numel`` elements; see :meth:`FramedParameter.decode`."""
    kernels = shared.kernels
    if frame.parameter != number:
        raise MessageError(f"holds parameter {frame.parameter} where {number} was agreed")
    if frame.nonfinite:
        return None
    if frame.count > numel:
        raise MessageError(f"{frame.count} elements, but the parameter has {numel}")
    values = np.empty(frame.count, dtype=np.float32)
    VALUE_CODES[frame.value_code].decode(frame.values, frame.scale, values, kernels)
    if frame.index_code == 0 and frame.count == numel and not frame.indices.size:
        return values
    indices = np.empty(frame.count, dtype=np.uint32)
    INDEX_CODES[frame.index_code].decode(frame.indices, numel, indices, kernels)
    return SparseGradient(indices, values, numel)
