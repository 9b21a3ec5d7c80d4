"""One parameter's way, readable like the paper: accumulate → select → encode → exchange → decode → aggregate.

:class:`ParameterPipeline` is the way of one parameter on one rank. :class:`GradientOperation` is one step on it, handed to
the engine, which runs several together as one message a rank.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sparse_ring.encode import INDEX_CODES, VALUE_CODES
from sparse_ring.engine.link import Link
from sparse_ring.engine.operation import Agreed, Operation, Request
from sparse_ring.error_feedback import ErrorFeedback
from sparse_ring.errors import MessageError
from sparse_ring.exchange.base import Gather
from sparse_ring.kernels.base import Kernels
from sparse_ring.message import Frame, MessageWriter, read_message
from sparse_ring.message.frame import FRAME_HEADER
from sparse_ring.observe.metrics import Metrics
from sparse_ring.observe.timeline import Track, now
from sparse_ring.recipe import SparseRecipe
from sparse_ring.select import Scratch
from sparse_ring.sparse import SparseGradient

logger = logging.getLogger(__name__)

MOST_NAMES = 5

Floats = NDArray[np.float32]
Decoded = SparseGradient | Floats | None


class Pipeline:
    """What the parameters of one optimizer share on a rank: kernels, exchange, the message's buffer, the scratch.

    plan
        u32 hash of what the ranks agreed on; it travels in each message, and changes where parameters are added.
    """

    def __init__(self, plan: int, kernels: Kernels, exchange: Gather) -> None:
        self.plan, self.kernels, self.exchange = plan, kernels, exchange
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
        Whether it is selected and coded, or dense in the same message (then it keeps no state).
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
        self.codec = recipe.codec
        self.feedback = recipe.error_feedback(self.numel, shared.kernels) if sparse else None
        self.selector = recipe.selector()

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
        else:
            keep = self.recipe.keep(self.numel, step)
            metrics.sparse_elements += self.numel
            if keep < self.numel:
                self._compress_sparse(self.feedback, gradient, momentum, nesterov, keep, metrics)
            else:
                self._compress_dense(self.feedback, gradient, momentum, nesterov, metrics)

    def _compress_sparse(
        self, feedback: ErrorFeedback, gradient: Floats, momentum: float, nesterov: bool, keep: int, metrics: Metrics
    ) -> None:
        kernels, scratch = self.shared.kernels, self.shared.scratch
        sparse = self.selector.select(feedback, gradient, momentum, nesterov, keep, kernels, scratch)
        if not kernels.all_finite(sparse.values):
            self._overflowed(feedback, metrics)
            return
        decoded = scratch.decoded[: sparse.count]
        encoded = self.shared.writer.add_sparse(self.number, sparse, self.codec, decoded)
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
        self.shared.writer.add_nonfinite(self.number, self.codec)
        metrics.nonfinite_frames += 1

    def sent(self, decoded: Decoded) -> None:
        """Take note of what all ranks have read of this one: ``decoded`` is what ``decode`` made of its own frame."""
        if self.feedback is None or decoded is None:
            return
        if isinstance(decoded, SparseGradient):
            self.feedback.sent(decoded)
        else:
            self.feedback.sent_all()

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
        """Return residual (and velocity) as arrays, not copied, and the selector's numbers; empty for a dense parameter."""
        return {} if self.feedback is None else {**self.feedback.state_dict(), **self.selector.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over copies of what ``state_dict`` returned; an empty mapping starts afresh."""
        if self.feedback is not None:
            arrays = {name: value for name, value in state.items() if isinstance(value, np.ndarray)}
            self.feedback.load_state_dict(arrays)
            self.selector.load_state_dict({name: value for name, value in state.items() if name not in arrays})


@dataclass
class GradientOperation(Operation):
    """One step of one parameter: the engine's operation.

    gradient
        ``float32[numel]``, this rank's gradient; overwritten with the aggregate.
    absent
        This rank has none: where others have one, ``gradient`` is overwritten with zeros first.
    step
        Optimizer step, from 0.
    average
        Divide by the number of ranks (Average), or not (Sum).

    The result is the array with the aggregate, or None where no rank had a gradient.
    """

    parameter: ParameterPipeline
    gradient: Floats
    step: int
    momentum: float
    nesterov: bool
    average: bool
    absent: bool = False

    KIND: ClassVar[str] = "gradient"

    def __post_init__(self) -> None:
        parameter = self.parameter
        self.request = Request(
            name=parameter.key,
            kind=self.KIND,
            dtype="float32",
            shape=parameter.shape,
            detail=f"op={'Average' if self.average else 'Sum'} {parameter.recipe!r} plan={parameter.shared.plan:08x}",
            absent=self.absent,
        )
        # At the final density: ranks at different steps must form equal buckets to tell each other so.
        final = parameter.recipe.keep(parameter.numel, parameter.recipe.warmup)
        self.nbytes = FRAME_HEADER.size + 4 * (final if parameter.feedback else parameter.numel)

    @property
    def fusion_key(self) -> Hashable:
        """Parameters of one optimizer share messages."""
        return self.KIND, self.parameter.shared.plan, self.average

    @classmethod
    def run(cls, batch: Sequence[Agreed], link: Link) -> list[Any]:
        """Compress all members into one message, exchange it, and aggregate member by member in rank order."""
        began = time.perf_counter()
        operations = [agreed.operation for agreed in batch]
        steps = [operation for operation in operations if isinstance(operation, GradientOperation)]
        shared = steps[0].parameter.shared
        timeline, at = link.timeline, now()
        message, failure = _compress(steps, link.metrics)
        timeline.work("compress", at, bytes=message.size)
        parts: list[list[Decoded | MessageError]] = [[] for _ in range(link.size)]

        def arrived(rank: int, data: NDArray[np.uint8]) -> None:
            at = now()
            parts[rank] = _decode(steps, data, rank)
            timeline.work("decode", at, of_rank=rank, bytes=data.size)

        sent_before, at = link.metrics.sent_bytes, now()
        shared.exchange.allgather(message, link, f"gradients from '{steps[0].request.name}' on", arrived)
        timeline.work("exchange", at, Track.EXCHANGE, sent_bytes=link.metrics.sent_bytes - sent_before)
        if failure is not None:
            raise failure
        _warn_nonfinite(steps, parts)
        at = now()
        results = [_aggregate(step, [part[i] for part in parts], link) for i, step in enumerate(steps)]
        timeline.work("aggregate", at)
        _count(steps, message.size, link, sent_before, began)
        return results


def _compress(steps: Sequence[GradientOperation], metrics: Metrics) -> tuple[NDArray[np.uint8], Exception | None]:
    """Return this rank's message; where that fails, one without frames, which the others refuse instead of waiting for it."""
    writer = steps[0].parameter.shared.writer
    begin = partial(writer.begin, steps[0].step & 0xFFFFFFFF, steps[0].parameter.shared.plan)
    begin()
    try:
        for step in steps:
            if step.absent:
                step.gradient.fill(0.0)
            step.parameter.compress(step.gradient, step.step, step.momentum, step.nesterov, metrics)
    except Exception as error:
        begin()
        return writer.finish(), error
    return writer.finish(), None


def _decode(steps: Sequence[GradientOperation], data: NDArray[np.uint8], rank: int) -> list[Decoded | MessageError]:
    # Never raises: the exchange still has to forward this message to the next rank.
    shared = steps[0].parameter.shared
    try:
        frames = read_message(data, steps[0].step & 0xFFFFFFFF, shared.plan, len(steps), shared.kernels)
    except MessageError as error:
        return [MessageError(error.reason, rank=rank, parameter=step.parameter.name) for step in steps]
    parts: list[Decoded | MessageError] = []
    for step, frame in zip(steps, frames, strict=True):
        try:
            if isinstance(frame, MessageError):
                raise frame
            parts.append(step.parameter.decode(frame))
        except MessageError as error:
            parts.append(MessageError(error.reason, rank=rank, parameter=step.parameter.name))
    return parts


def _aggregate(step: GradientOperation, parts: Sequence[Decoded | MessageError], link: Link) -> Floats | MessageError:
    whole: list[Decoded] = []
    for part in parts:
        if isinstance(part, MessageError):
            return part
        whole.append(part)
    step.parameter.aggregate(whole, 1.0 / link.size if step.average else 1.0, step.gradient)
    step.parameter.sent(whole[link.rank])
    return step.gradient


def _warn_nonfinite(steps: Sequence[GradientOperation], parts: Sequence[Sequence[Decoded | MessageError]]) -> None:
    """Tell each rank's first non-finite gradients, then the 2nd, 4th, 8th, … time, so that a run of them fills no disk."""
    counts = steps[0].parameter.shared.nonfinite
    for rank, decoded in enumerate(parts):
        names = [f"'{step.parameter.name}'" for step, part in zip(steps, decoded, strict=True) if part is None]
        if not names:
            continue
        counts[rank] = counts.get(rank, 0) + 1
        if counts[rank] & (counts[rank] - 1) == 0:
            more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
            logger.warning(
                "Step %d: the gradient of rank %d is not finite for %s%s; its share is left out, its residual kept "
                "(time %d).",
                steps[0].step, rank, ", ".join(names[:MOST_NAMES]), more, counts[rank],
            )  # fmt: skip


def _count(steps: Sequence[GradientOperation], message_bytes: int, link: Link, sent_before: int, began: float) -> None:
    metrics = link.metrics
    dense = 4 * sum(step.parameter.numel for step in steps)
    metrics.dense_bytes += dense
    metrics.message_bytes += message_bytes
    metrics.ring_bytes += 2 * (link.size - 1) / link.size * dense
    metrics.gradient_wire_bytes += metrics.sent_bytes - sent_before
    metrics.add_exchange(began)
