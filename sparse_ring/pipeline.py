"""One parameter's way, readable like the paper: accumulate → select → encode → exchange → decode → aggregate.

:class:`ParameterPipeline` is the way of one parameter on one rank. :class:`GradientOperation` is one step on it, handed to
the engine, which runs several together as one message a rank.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
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
from sparse_ring.recipe import SparseRecipe
from sparse_ring.select import Scratch
from sparse_ring.sparse import SparseGradient

logger = logging.getLogger(__name__)

Floats = NDArray[np.float32]
Decoded = SparseGradient | Floats | None

_NOTHING = SparseGradient(np.empty(0, dtype=np.uint32), np.empty(0, dtype=np.float32), 0)


class Pipeline:
    """What the parameters of one optimizer share on a rank: recipe, kernels, exchange, the message's buffer, the scratch.

    plan
        u32 hash of what the ranks agreed on; it travels in each message.
    """

    def __init__(self, recipe: SparseRecipe, plan: int, kernels: Kernels, exchange: Gather) -> None:
        self.recipe, self.plan, self.kernels, self.exchange = recipe, plan, kernels, exchange
        self.codec = recipe.codec
        self.empty_codec = self.codec.choose(_NOTHING, kernels)
        self.writer = MessageWriter(kernels)
        self.scratch = Scratch()


class ParameterPipeline:
    """The state of one parameter and the two halves of its way.

    number
        Its number on the wire.
    sparse
        Whether it is selected and coded, or dense in the same message (then it keeps no state unless its values are coded).
    """

    def __init__(
        self, shared: Pipeline, number: int, name: str, shape: tuple[int, ...], numel: int, sparse: bool
    ) -> None:
        self.shared, self.number, self.name, self.shape, self.numel = shared, number, name, shape, numel
        self.sparse = sparse
        recipe = shared.recipe
        self.feedback = (recipe.error_feedback if sparse else recipe.small_feedback)(numel, shared.kernels)
        self.selector = shared.recipe.selector()

    def compress(self, gradient: Floats, step: int, momentum: float, nesterov: bool, metrics: Metrics) -> None:
        """Take in this rank's gradient (``float32[numel]``, only read) and add one frame to the shared message.

        A gradient that is not finite leaves the state untouched and becomes an empty, flagged frame.
        """
        shared = self.shared
        if not shared.kernels.all_finite(gradient):
            shared.writer.add_nonfinite(self.number, shared.empty_codec)
            metrics.nonfinite_frames += 1
        elif self.feedback is None:
            shared.writer.add_dense(self.number, gradient)
        elif not self.sparse:
            self._compress_small(self.feedback, gradient)
        else:
            keep = shared.recipe.keep(self.numel, step)
            metrics.sparse_elements += self.numel
            if keep < self.numel:
                self._compress_sparse(gradient, momentum, nesterov, keep, metrics)
            else:
                self.feedback.accumulate(gradient, momentum, nesterov)
                shared.writer.add_dense(self.number, self.feedback.accumulated)
                self.feedback.sent_all()
                metrics.kept_elements += self.numel
                metrics.value_bytes += 4 * self.numel

    def _compress_small(self, feedback: ErrorFeedback, gradient: Floats) -> None:
        shared = self.shared
        feedback.accumulate(gradient, 0.0, False)
        shared.scratch.reserve(self.numel)
        decoded = shared.scratch.decoded[: self.numel]
        shared.writer.add_dense_coded(self.number, feedback.accumulated, shared.recipe.small_code, decoded)
        feedback.sent_all(decoded)

    def _compress_sparse(self, gradient: Floats, momentum: float, nesterov: bool, keep: int, metrics: Metrics) -> None:
        shared = self.shared
        assert self.feedback is not None
        sparse = self.selector.select(self.feedback, gradient, momentum, nesterov, keep, shared.kernels, shared.scratch)
        decoded = shared.scratch.decoded[: sparse.count]
        codec = shared.codec.choose(sparse, shared.kernels)
        encoded = shared.writer.add_sparse(self.number, sparse, codec, decoded)
        self.feedback.sent(sparse, decoded)
        metrics.kept_elements += sparse.count
        metrics.index_bytes += encoded.index_bytes
        metrics.value_bytes += encoded.value_bytes

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

    def state_dict(self) -> dict[str, Any]:
        """Return residual (and velocity) as arrays, not copied, and the selector's numbers; empty without error feedback."""
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
        shared = parameter.shared
        self.request = Request(
            name=parameter.name,
            kind=self.KIND,
            dtype="float32",
            shape=parameter.shape,
            detail=f"op={'Average' if self.average else 'Sum'} {shared.recipe!r} plan={shared.plan:08x}",
            absent=self.absent,
        )
        kept = shared.recipe.keep(parameter.numel, self.step) if parameter.sparse else parameter.numel
        self.nbytes = FRAME_HEADER.size + 4 * kept

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
        message = _compress(steps, link.metrics)
        parts: list[list[Decoded | MessageError]] = [[] for _ in range(link.size)]

        def arrived(rank: int, data: NDArray[np.uint8]) -> None:
            parts[rank] = _decode(steps, data, rank)

        sent_before = link.metrics.sent_bytes
        shared.exchange.allgather(message, link, f"gradients from '{steps[0].request.name}' on", arrived)
        _warn_nonfinite(steps, parts)
        results = [_aggregate(step, [part[i] for part in parts], link.size) for i, step in enumerate(steps)]
        _count(steps, message.size, link, sent_before, began)
        return results


def _compress(steps: Sequence[GradientOperation], metrics: Metrics) -> NDArray[np.uint8]:
    writer = steps[0].parameter.shared.writer
    writer.begin(steps[0].step & 0xFFFFFFFF, steps[0].parameter.shared.plan)
    for step in steps:
        if step.absent:
            step.gradient.fill(0.0)
        step.parameter.compress(step.gradient, step.step, step.momentum, step.nesterov, metrics)
    return writer.finish()


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


def _aggregate(step: GradientOperation, parts: Sequence[Decoded | MessageError], size: int) -> Floats | MessageError:
    whole: list[Decoded] = []
    for part in parts:
        if isinstance(part, MessageError):
            return part
        whole.append(part)
    step.parameter.aggregate(whole, 1.0 / size if step.average else 1.0, step.gradient)
    return step.gradient


def _warn_nonfinite(steps: Sequence[GradientOperation], parts: Sequence[Sequence[Decoded | MessageError]]) -> None:
    for rank, decoded in enumerate(parts):
        names = [step.parameter.name for step, part in zip(steps, decoded, strict=True) if part is None]
        if names:
            logger.warning(
                "Step %d: the gradient of rank %d is not finite for %s; its share is left out, its residual kept.",
                steps[0].step,
                rank,
                ", ".join(f"'{name}'" for name in names),
            )


def _count(steps: Sequence[GradientOperation], message_bytes: int, link: Link, sent_before: int, began: float) -> None:
    metrics = link.metrics
    dense = 4 * sum(step.parameter.numel for step in steps)
    metrics.dense_bytes += dense
    metrics.message_bytes += message_bytes
    metrics.ring_bytes += 2 * (link.size - 1) / link.size * dense
    metrics.gradient_wire_bytes += metrics.sent_bytes - sent_before
    metrics.exchange_seconds += time.perf_counter() - began
