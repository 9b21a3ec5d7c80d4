"""One parameter's way, readable like the paper: accumulate → select → encode, and decode → aggregate on the other side.

What lies between, the exchange of several parameters' frames as one message, is ``gradient_operation.py``.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparse_ring.encode import INDEX_CODES, VALUE_CODES
from sparse_ring.engine.operation import Request
from sparse_ring.error_feedback import ErrorFeedback
from sparse_ring.errors import MessageError
from sparse_ring.exchange.base import Gather
from sparse_ring.kernels.base import Kernels
from sparse_ring.message import Frame, MessageWriter
from sparse_ring.message.frame import FRAME_HEADER
from sparse_ring.message.writer import frame_bound
from sparse_ring.observe.metrics import Metrics
from sparse_ring.recipe import SparseRecipe
from sparse_ring.select import Scratch
from sparse_ring.sparse import SparseGradient

logger = logging.getLogger(__name__)

Floats = NDArray[np.float32]
Decoded = SparseGradient | Floats | None

_NOTHING = SparseGradient(np.empty(0, dtype=np.uint32), np.empty(0, dtype=np.float32), 0)


class Pipeline:
    """What the parameters of one optimizer share on a rank: kernels, exchange, the message's buffer, the scratch.

    plan
        u32 hash of what the ranks agreed on; it travels in each message, and changes where parameters are added.
    owner
        Which optimizer, equal on all ranks: two of them may have equal plans, and yet messages of their own.
    """

    def __init__(self, plan: int, kernels: Kernels, exchange: Gather, owner: str = "") -> None:
        self.plan, self.kernels, self.exchange, self.owner = plan, kernels, exchange, owner
        self.writer = MessageWriter(kernels)
        self.scratch = Scratch()
        self.nonfinite: dict[int, int] = {}


class ParameterPipeline:
    """The state of one parameter and the two halves of its way.

    recipe
        From which its way is composed.
    number
        Its number on the wire.
    name
        As in errors; ``key`` is the operation's name, unique among all optimizers of the rank.
    sparse
        Whether it is selected and coded, or dense in the same message (then it keeps no state unless its values are coded).
    """

    def __init__(
        self,
        shared: Pipeline,
        recipe: SparseRecipe,
        number: int,
        name: str,
        shape: tuple[int, ...],
        *,
        sparse: bool,
        key: str | None = None,
    ) -> None:
        self.shared, self.recipe, self.number, self.name = shared, recipe, number, name
        self.key = key or name
        self.shape, self.numel = shape, math.prod(shape)
        self.codec, self.sparse = recipe.codec, sparse
        self.empty_codec = self.codec.choose(_NOTHING, shared.kernels)
        self.feedback = (recipe.error_feedback if sparse else recipe.small_feedback)(self.numel, shared.kernels)
        self.selector = recipe.selector()
        # At the final density: ranks at different steps must form equal buckets to tell each other so.
        self.final_bytes = FRAME_HEADER.size + 4 * self.keep(recipe.warmup)
        # What operations have said of it, and their frame's bound.
        self.asked: dict[tuple[int, bool, int, bool], tuple[Request, int]] = {}

    def keep(self, step: int) -> int:
        """Return how many elements are sent at an optimizer step; all of them where the frame is dense."""
        return self.recipe.keep(self.numel, step) if self.sparse else self.numel

    def frame_bound(self, keep: int) -> int:
        """Return what a frame of ``keep`` elements takes at most, in bytes; the same on all ranks."""
        if self.sparse and keep < self.numel:
            return frame_bound(self.codec.most(keep, self.numel))
        return frame_bound(max(4 * self.numel, self.recipe.small_code.size(self.numel)))

    def compress(self, gradient: Floats, step: int, momentum: float, nesterov: bool, metrics: Metrics) -> None:
        """Take in this rank's gradient (``float32[numel]``, only read) and add one frame to the shared message.

        A gradient that is not finite leaves the state untouched and becomes an empty, flagged frame. What is sent leaves the
        state only in ``sent``, once all ranks' frames have been read.
        """
        kernels, writer = self.shared.kernels, self.shared.writer
        if not kernels.all_finite(gradient):
            self._add_nonfinite(metrics)
        elif self.feedback is None:
            writer.add_dense(self.number, gradient)
        elif not self.sparse:
            self._compress_small(self.feedback, gradient, metrics)
        else:
            keep = self.recipe.keep(self.numel, step)
            metrics.sparse_elements += self.numel
            if keep < self.numel:
                self._compress_sparse(self.feedback, gradient, momentum, nesterov, keep, metrics)
            else:
                self._compress_dense(self.feedback, gradient, momentum, nesterov, metrics)

    def _compress_small(self, feedback: ErrorFeedback, gradient: Floats, metrics: Metrics) -> None:
        shared = self.shared
        feedback.accumulate(gradient, 0.0, False)
        if not shared.kernels.all_finite(feedback.accumulated):
            self._overflowed(feedback, metrics)
            return
        shared.scratch.reserve(self.numel)
        decoded = shared.scratch.decoded[: self.numel]
        shared.writer.add_dense_coded(self.number, feedback.accumulated, self.recipe.small_code, decoded)

    def _compress_sparse(
        self, feedback: ErrorFeedback, gradient: Floats, momentum: float, nesterov: bool, keep: int, metrics: Metrics
    ) -> None:
        kernels, scratch = self.shared.kernels, self.shared.scratch
        sparse = self.selector.select(feedback, gradient, momentum, nesterov, keep, kernels, scratch)
        if not kernels.all_finite(sparse.values):
            self._overflowed(feedback, metrics)
            return
        decoded = scratch.decoded[: sparse.count]
        codec = self.codec.choose(sparse, kernels)
        encoded = self.shared.writer.add_sparse(self.number, sparse, codec, decoded)
        metrics.kept_elements += sparse.count
        metrics.index_bytes += encoded.index_bytes
        metrics.value_bytes += encoded.value_bytes

    def _compress_dense(
        self, feedback: ErrorFeedback, gradient: Floats, momentum: float, nesterov: bool, metrics: Metrics
    ) -> None:
        feedback.accumulate(gradient, momentum, nesterov)
        if not self.shared.kernels.all_finite(feedback.accumulated):
            self._overflowed(feedback, metrics)
            return
        self.shared.writer.add_dense(self.number, feedback.accumulated)
        metrics.kept_elements += self.numel
        metrics.value_bytes += 4 * self.numel

    def _overflowed(self, feedback: ErrorFeedback, metrics: Metrics) -> None:
        """Finite gradients have added up beyond float32: what overflowed can't be kept, and would spoil all later steps."""
        lost = feedback.drop_nonfinite()
        logger.error(
            "Parameter '%s': the residual has overflowed in %d elements, which start at zero.", self.name, lost
        )
        self._add_nonfinite(metrics)

    def _add_nonfinite(self, metrics: Metrics) -> None:
        self.shared.writer.add_nonfinite(self.number, self.empty_codec)
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
        kernels = self.shared.kernels
        if frame.parameter != self.number:
            raise MessageError(f"holds parameter {frame.parameter} where {self.number} was agreed")
        if frame.nonfinite:
            return None
        if frame.count > self.numel:
            raise MessageError(f"{frame.count} elements, but the parameter has {self.numel}")
        values = np.empty(frame.count, dtype=np.float32)
        VALUE_CODES[frame.value_code].decode(frame.values, frame.scale, values, kernels)
        if frame.index_code == 0 and frame.count == self.numel and not frame.indices.size:
            return values
        indices = np.empty(frame.count, dtype=np.uint32)
        INDEX_CODES[frame.index_code].decode(frame.indices, self.numel, indices, kernels)
        return SparseGradient(indices, values, self.numel)

    def aggregate(self, decoded: Sequence[Decoded], scale: float, out: Floats) -> None:
        """``out = sum over ranks of decoded * scale``, added in rank order, so that every rank gets the same bits."""
        kernels = self.shared.kernels
        out.fill(0.0)
        for part in decoded:
            if isinstance(part, SparseGradient):
                kernels.scatter_add(out, part.indices, part.values, scale)
            elif part is not None:
                kernels.add_scaled(out, part, scale)

    def residual_norm(self) -> float:
        """Return the Euclidean norm of what was not sent yet; 0 for a dense parameter."""
        return 0.0 if self.feedback is None else float(np.linalg.norm(self.feedback.accumulated))

    def state_dict(self) -> dict[str, Any]:
        """Return residual (and velocity) as arrays, not copied, and the selector's numbers; empty without error feedback."""
        return {} if self.feedback is None else {**self.feedback.state_dict(), **self.selector.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over copies of what ``state_dict`` returned; an empty mapping starts afresh."""
        if self.feedback is not None:
            arrays = {name: value for name, value in state.items() if isinstance(value, np.ndarray)}
            self.feedback.load_state_dict(arrays)
            self.selector.load_state_dict({name: value for name, value in state.items() if name not in arrays})
