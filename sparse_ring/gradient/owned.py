"""Each rank adds up one part of a parameter: coded parts to their owners, the coded sums to all.

[ours, after the two-sided compression of Tang et al., DoubleSqueeze, ICML 2019] A parameter is cut into as many parts as there are
ranks. Every rank codes its parts and sends each to its owner, who adds them in rank order, codes the sum and sends it to all.
``2 (P - 1) / P`` times the coded bytes leave each rank, where sending all frames to all ranks takes ``P - 1`` times.

What the second coding loses goes into the owner's own residual (times P under Average), so the sum over the ranks of what was sent
and what waits is conserved up to the rounding of one float32 addition an element.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from sparse_ring.encode import Coding, ValueCode
from sparse_ring.engine.link import Link
from sparse_ring.engine.operation import Agreed, Operation
from sparse_ring.errors import MessageError
from sparse_ring.exchange.ring import part_bounds
from sparse_ring.gradient.base import Floats, GradientOperation, OptimizerStep, ParameterPipeline, Pipeline
from sparse_ring.gradient.framed import decoded
from sparse_ring.gradient.report import count_exchange, report_nonfinite
from sparse_ring.message import Frame, read_message
from sparse_ring.message.frame import FRAME_HEADER
from sparse_ring.message.writer import frame_bound, message_bound
from sparse_ring.observe.timeline import Track, now
from sparse_ring.sparse import SparseGradient

if TYPE_CHECKING:
    from sparse_ring.recipe import QuantizedRecipe

Bytes = NDArray[np.uint8]
# One part of a parameter as a rank sent it; None where its gradient was not finite.
Part = Floats | MessageError | None


class OwnedParameter(ParameterPipeline):
    """A parameter whose elements are all coded, part by part."""

    def __init__(
        self,
        shared: Pipeline,
        recipe: QuantizedRecipe,
        number: int,
        name: str,
        shape: tuple[int, ...],
        key: str | None = None,
    ) -> None:
        super().__init__(shared, recipe, number, name, shape, key)
        self.coder, self.majority, self.keeps_residual = (
            recipe.coder_with_warmup(),
            recipe.majority,
            recipe.keeps_residual,
        )
        self._seed = shared.seed(recipe.seed)
        self.feedback = recipe.error_feedback(self.numel, shared.kernels)
        self.parts = [slice(*part_bounds(self.numel, rank, shared.size)) for rank in range(shared.size)]

    def operation(self, gradient: Floats, step: OptimizerStep, absent: bool = False) -> Operation:
        """See :meth:`ParameterPipeline.operation`."""
        return OwnedGradient(self, gradient, step, absent)

    def length(self, rank: int) -> int:
        """Return how many elements the part of a rank has."""
        return self.parts[rank].stop - self.parts[rank].start

    def frame_bound(self, rank: int, step: int) -> int:
        """Return what a frame of the part of a rank takes at most at an optimizer step, in bytes."""
        return frame_bound(self.coder.most(self.length(rank), step))

    def detail(self, step: int) -> str:
        """During the warm-up frames need more room."""
        return " in the warm-up" if step < self.recipe.warmup else ""

    def code(self, values: Floats, step: int, place: int) -> ValueCode:
        """Return the code for a part, with random numbers of its own.

        place
            The rank that owns it; plus the number of ranks where it is a sum.
        """
        number = self.number + (place + 1 << 32)
        coding = Coding(seed=self._seed, step=step, parameter=number, scale=self.coder.unit(values))
        return self.coder.choose(values, coding, self.shared.kernels)

    def decode(self, frame: Frame, owner: int) -> Floats | None:
        """Return the part of a rank that a frame holds; None where that was not finite. Raises MessageError."""
        if frame.refused:
            raise MessageError(
                "could not add up what it got: a message on its way there was damaged, or its own error says why"
            )
        values = decoded(frame, self.number, self.length(owner), self.shared)
        if isinstance(values, SparseGradient):
            raise MessageError(f"has {values.count} of {values.numel} elements, but all were agreed")
        return values

    def state_dict(self) -> dict[str, Any]:
        """Return residual (or velocity) as arrays, not copied, and what the coder has chosen."""
        return {**super().state_dict(), **self.coder.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See :meth:`ParameterPipeline.load_state_dict`."""
        arrays = {name: value for name, value in state.items() if isinstance(value, np.ndarray)}
        super().load_state_dict(arrays)
        self.coder.load_state_dict({name: value for name, value in state.items() if name not in arrays})


class OwnedGradient(GradientOperation):
    """One step of one parameter whose parts have owners; see :class:`GradientOperation`."""

    KIND: ClassVar[str] = "gradient with owners"

    def __init__(self, parameter: OwnedParameter, gradient: Floats, step: OptimizerStep, absent: bool = False) -> None:
        super().__init__(parameter, gradient, step, absent)
        self.parameter = parameter
        self.nbytes = FRAME_HEADER.size + parameter.coder.most(parameter.numel, parameter.recipe.warmup)
        # One frame an owner.
        self._frames: list[Bytes] = []
        self._nonfinite = False
        self._failure: Exception | None = None

    def take_in(self, link: Link) -> None:
        """See :meth:`GradientOperation.take_in`."""
        if self._frames or self._failure is not None:
            return
        at = now()
        try:
            if self.absent:
                self.gradient.fill(0.0)
            self._accumulate(link)
            self._frames = [self._coded(rank) for rank in range(link.size)]
            link.metrics.value_bytes += sum(frame.size for frame in self._frames)
        except Exception as error:
            traceback.clear_frames(error.__traceback__)
            self._failure = error
        link.timeline.work("compress", at, bytes=sum(frame.size for frame in self._frames))

    def _accumulate(self, link: Link) -> None:
        parameter, feedback, kernels = self.parameter, self.parameter.feedback, self.parameter.shared.kernels
        assert feedback is not None
        self._nonfinite = not kernels.all_finite(self.gradient)
        if not self._nonfinite:
            feedback.accumulate(self.gradient, self.step.momentum, self.step.nesterov)
            if not kernels.all_finite(feedback.accumulated):
                parameter.drop_overflow()
                self._nonfinite = True
        link.metrics.nonfinite_frames += self._nonfinite
        link.metrics.sparse_elements += parameter.numel
        link.metrics.kept_elements += 0 if self._nonfinite else parameter.numel

    def _coded(self, rank: int) -> Bytes:
        """Return the frame for a part's owner; what it will see takes the gradient's place, which is not needed any more."""
        parameter, writer = self.parameter, self.parameter.shared.writer
        writer.begin(0, 0)
        if self._nonfinite:
            writer.add_nonfinite(parameter.number)
        else:
            assert parameter.feedback is not None
            part = parameter.parts[rank]
            values = parameter.feedback.accumulated[part]
            code = parameter.code(values, self.step.number, rank)
            writer.add_dense_coded(parameter.number, values, code, self.gradient[part])
        return writer.frames()

    @classmethod
    def run(cls, batch: Sequence[Agreed], link: Link) -> list[Any]:
        """Bring the parts to their owners, add them there, and bring the sums to all ranks."""
        began, sent_before = time.perf_counter(), link.metrics.sent_bytes
        steps = [cast(OwnedGradient, agreed.operation) for agreed in batch]
        for step in steps:
            step.take_in(link)
        failure = next((step._failure for step in steps if step._failure is not None), None)
        at = now()
        mine = _to_owners(steps, link, failed=failure is not None)
        for rank in range(link.size):
            # Every rank owns a part of each parameter, so every rank sees which gradients are not finite.
            missing = [step.parameter for step, parts in zip(steps, mine, strict=True) if parts[rank] is None]
            report_nonfinite(missing, rank, steps[0].step.number)
        sums = _to_all(steps, mine, link)
        link.timeline.work("exchange", at, Track.EXCHANGE, sent_bytes=link.metrics.sent_bytes - sent_before)
        results: list[Any] = [
            failure or step._failure or step._finish(parts, link) for step, parts in zip(steps, sums, strict=True)
        ]
        count_exchange([step.parameter for step in steps], 0, link, sent_before, began)
        return results

    def _finish(self, sums: Sequence[Part], link: Link) -> Floats | MessageError:
        """Put the sums of all owners in the gradient's place; the residual keeps everything where one is missing."""
        parameter = self.parameter
        whole: list[Floats | None] = []
        for part in sums:
            if isinstance(part, MessageError):
                return part
            whole.append(part)
        assert parameter.feedback is not None
        for rank, total in enumerate(whole):
            if total is None:
                # A sum beyond float32, or of nothing: no gradient there, and what was sent of it waits.
                self.gradient[parameter.parts[rank]] = 0.0
        if not self._nonfinite:
            parameter.feedback.sent_all(self.gradient)
        if self._left is not None:
            parameter.feedback.accumulated[parameter.parts[link.rank]] += self._left
        for rank, total in enumerate(whole):
            self.gradient[parameter.parts[rank]] = np.float32(0) if total is None else total
        parameter.tell_aggregate(self.gradient, [], self.step)
        return self.gradient

    _left: Floats | None = None

    def _summed(self, parts: Sequence[Part], link: Link) -> Bytes:
        """Return the frame of this rank's sum; where it fails, one that says so: the others wait for a message all the same."""
        try:
            return _sum_frame(self, parts, link)
        except Exception as error:
            traceback.clear_frames(error.__traceback__)
            self._failure, self._left = error, None
            writer = self.parameter.shared.writer
            writer.begin(0, 0)
            writer.add_refused(self.parameter.number)
            return writer.frames()


def _to_owners(steps: Sequence[OwnedGradient], link: Link, *, failed: bool) -> list[list[Part]]:
    """Send parts to their owners; returns what each rank sent of this rank's part, for each parameter."""
    shared, step = steps[0].parameter.shared, steps[0].step.number & 0xFFFFFFFF
    messages = []
    for rank in range(link.size):
        shared.writer.begin(step, shared.plan)
        for one in () if failed else steps:
            shared.writer.add(one._frames[rank])
        messages.append(shared.writer.finish().copy())
    found: list[list[Part]] = [[] for _ in range(link.size)]

    def arrived(rank: int, data: Bytes) -> None:
        found[rank] = _parts(steps, data, rank, link.rank)

    bound = message_bound(one.parameter.frame_bound(link.rank, one.step.number) for one in steps)
    what = f"parts of gradients from '{steps[0].request.name}' on"
    shared.exchanges.messages.alltoall(messages, [bound] * link.size, link, what, arrived)
    if not failed:
        link.metrics.message_bytes += sum(message.size for message in messages)
    return [[ranks[place] for ranks in found] for place in range(len(steps))]


def _to_all(steps: Sequence[OwnedGradient], mine: Sequence[list[Part]], link: Link) -> list[list[Part]]:
    """Add up this rank's parts and send the sums to all; returns every owner's sum, for each parameter."""
    shared, number = steps[0].parameter.shared, steps[0].step.number
    frames = [step._summed(parts, link) for step, parts in zip(steps, mine, strict=True)]
    shared.writer.begin(number & 0xFFFFFFFF, shared.plan)
    for frame in frames:
        shared.writer.add(frame)
    message = shared.writer.finish()
    found: list[list[Part]] = [[] for _ in range(link.size)]

    def arrived(rank: int, data: Bytes) -> None:
        found[rank] = _parts(steps, data, rank, rank)

    bounds = [message_bound(one.parameter.frame_bound(rank, number) for one in steps) for rank in range(link.size)]
    what = f"sums of gradients from '{steps[0].request.name}' on"
    shared.exchanges.messages.allgather(message, bounds, link, what, arrived)
    link.metrics.message_bytes += message.size
    return [[ranks[place] for ranks in found] for place in range(len(steps))]


def _parts(steps: Sequence[OwnedGradient], data: Bytes, rank: int, owner: int) -> list[Part]:
    # Never raises: the messages of the other ranks are still to come.
    shared, parts = steps[0].parameter.shared, []
    try:
        number = steps[0].step.number & 0xFFFFFFFF
        frames = read_message(data, number, shared.plan, len(steps), shared.kernels)
    except MessageError as error:
        return [MessageError(error.reason, rank=rank, parameter=step.parameter.name) for step in steps]
    for step, frame in zip(steps, frames, strict=True):
        part: Part
        try:
            if isinstance(frame, MessageError):
                raise frame
            part = step.parameter.decode(frame, owner)
        except MessageError as error:
            part = MessageError(error.reason, rank=rank, parameter=step.parameter.name)
        parts.append(part)
    return parts


def _sum_frame(step: OwnedGradient, parts: Sequence[Part], link: Link) -> Bytes:
    """Return the frame of what all ranks sent of this rank's part, added up and coded again."""
    parameter, shared = step.parameter, step.parameter.shared
    writer, kernels = shared.writer, shared.kernels
    writer.begin(0, 0)
    if any(isinstance(part, MessageError) for part in parts):
        writer.add_refused(parameter.number)
        return writer.frames()
    arrays = cast("Sequence[Floats | None]", parts)
    length = parameter.length(link.rank)
    if all(array is None for array in arrays):
        writer.add_nonfinite(parameter.number)
        return writer.frames()
    if parameter.majority:
        total = majority(arrays, length, step.step.number % link.size)
    else:
        total = np.zeros(length, dtype=np.float32)
        for array in arrays:
            if array is not None:
                kernels.add_scaled(total, array, 1.0 / link.size if step.step.average else 1.0)
    if not kernels.all_finite(total):
        writer.add_nonfinite(parameter.number)
        return writer.frames()
    sent = np.empty(length, dtype=np.float32)
    writer.add_dense_coded(
        parameter.number, total, parameter.code(total, step.step.number, link.size + link.rank), sent
    )
    if parameter.keeps_residual:
        step._left = (total - sent) * np.float32(link.size if step.step.average else 1)
    return writer.frames()


def majority(votes: Sequence[Floats | None], length: int, tie: int) -> Floats:
    """Return +1 or -1 for each of ``length`` elements, as most ranks have it by sign; None has no vote.

    Where as many are for as against, the vote of rank ``tie`` counts, or +1 where it has none. The lot falls on each rank in turn,
    so that no rank's vote counts more in the long run. [ours]
    """
    count = np.zeros(length, dtype=np.int32)
    for vote in votes:
        if vote is not None:
            count += np.where(np.signbit(vote), np.int32(-1), np.int32(1))
    chosen = votes[tie]
    lot = np.zeros(length, dtype=bool) if chosen is None else np.signbit(chosen)
    negative = (count < 0) | ((count == 0) & lot)
    signs: Floats = np.where(negative, np.float32(-1), np.float32(1))
    return signs
