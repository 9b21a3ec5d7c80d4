"""Every rank's frames to every rank: several parameters run together as one message a rank, added in rank order."""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from sparse_ring.engine.link import Link
from sparse_ring.engine.operation import Agreed
from sparse_ring.errors import MessageError
from sparse_ring.gradient.base import Decoded, Floats, GradientOperation, OptimizerStep
from sparse_ring.gradient.report import count_exchange, report_nonfinite
from sparse_ring.message import read_message
from sparse_ring.message.writer import message_bound
from sparse_ring.observe.timeline import Track, now

if TYPE_CHECKING:
    from sparse_ring.gradient.framed import FramedParameter

# What each rank sent of one parameter, by rank; an error where it was damaged.
Parts = list[Decoded | MessageError]


class GatheredGradient(GradientOperation):
    """One step of one parameter that travels as a frame; see :class:`GradientOperation`."""

    KIND: ClassVar[str] = "gradient"
    gathers: ClassVar[bool] = True

    def __init__(self, parameter: FramedParameter, gradient: Floats, step: OptimizerStep, absent: bool = False) -> None:
        super().__init__(parameter, gradient, step, absent)
        self.parameter = parameter
        detail = self.request.detail
        bound = parameter.bounds.get(detail)
        if bound is None:
            bound = parameter.bounds[detail] = parameter.frame_bound(step.number)
        self.frame_bound = bound
        self.nbytes = parameter.final_bytes
        self._frame: NDArray[np.uint8] | None = None
        self._failure: Exception | None = None
        self._attached_bytes = 0

    def take_in(self, link: Link) -> None:
        """See :meth:`GradientOperation.take_in`; where ranks share a unit, all of it waits for that."""
        if not self.parameter.shares_unit:
            self._compress(link)

    def _begin(self) -> float:
        """Take in the gradient; return the unit that ranks agree on, 0 where this fails."""
        try:
            if self.absent:
                self.gradient.fill(0.0)
            return self.parameter.begin(self.gradient, self.step)
        except Exception as error:
            traceback.clear_frames(error.__traceback__)
            self._failure = error
            return 0.0

    def _compress(self, link: Link, unit: float | None = None) -> None:
        if self._frame is not None or self._failure is not None:
            return
        at, writer, nbytes = now(), self.parameter.shared.writer, 0
        writer.begin(0, 0)
        try:
            if self.absent:
                self.gradient.fill(0.0)
            self.parameter.compress(self.gradient, self.step, link.metrics, unit)
            self._frame = writer.frames()
            nbytes = self._frame.size
        except Exception as error:
            # Its frames must not keep the gradients of a whole step.
            traceback.clear_frames(error.__traceback__)
            self._failure = error
        link.timeline.work("compress", at, bytes=nbytes)

    @property
    def payload_bytes(self) -> int:  # type: ignore[override]
        """What its own message takes at most, which all ranks decide by alike; 0 until the frame is there."""
        return 0 if self._frame is None else message_bound((self.frame_bound,))

    def payload(self, size: int) -> bytes:
        """Return the message of this parameter alone."""
        data = _message([self]).tobytes()
        self._attached_bytes = len(data)
        return data

    @classmethod
    def run(cls, batch: Sequence[Agreed], link: Link) -> list[Any]:
        """Bring all ranks' frames together, and aggregate member by member in rank order.

        Frames that came with the requests are here; the others travel now, as one message a rank.
        """
        began, sent_before = time.perf_counter(), link.metrics.sent_bytes
        steps = [cast(GatheredGradient, agreed.operation) for agreed in batch]
        first = steps[0]
        here = [bool(agreed.payloads) and None not in agreed.payloads for agreed in batch]
        left = [step for step, rode in zip(steps, here, strict=True) if not rode]
        exchanged, failure = _exchange(left, link) if left else ([], None)
        travelled = iter(exchanged)
        parts = [
            _parts_of(step, agreed.payloads, link) if rode else next(travelled)
            for step, agreed, rode in zip(steps, batch, here, strict=True)
        ]
        for rank in range(link.size):
            missing = [step.parameter for step, part in zip(steps, parts, strict=True) if part[rank] is None]
            report_nonfinite(missing, rank, first.step.number)
        at = now()
        results: list[Any] = [
            # The other ranks have the frames that rode, whatever became of the message.
            failure if failure is not None and not rode else _aggregate(step, part, link)
            for step, part, rode in zip(steps, parts, here, strict=True)
        ]
        link.timeline.work("aggregate", at)
        attached = sum(step._attached_bytes for step in steps)
        count_exchange([step.parameter for step in steps], attached, link, sent_before, began)
        return results


def _message(steps: Sequence[GatheredGradient]) -> NDArray[np.uint8]:
    """Return this rank's frames as one message, valid until the next."""
    shared = steps[0].parameter.shared
    shared.writer.begin(steps[0].step.number & 0xFFFFFFFF, shared.plan)
    for step in steps:
        assert step._frame is not None
        shared.writer.add(step._frame)
    return shared.writer.finish()


def _exchange(steps: Sequence[GatheredGradient], link: Link) -> tuple[list[Parts], Exception | None]:
    """Bring every rank's message of these to every rank; returns for each step what each rank sent.

    Where compressing failed on this rank, its message has no frames: the others refuse it instead of waiting for it. The error is
    returned as well.
    """
    shared, timeline = steps[0].parameter.shared, link.timeline
    for step, unit in zip(steps, _agreed_units(steps, link), strict=True):
        step._compress(link, unit)
    failure = next((step._failure for step in steps if step._failure is not None), None)
    if failure is None:
        message = _message(steps)
    else:
        shared.writer.begin(steps[0].step.number & 0xFFFFFFFF, shared.plan)
        message = shared.writer.finish()
    ranks: list[Parts] = [[] for _ in range(link.size)]

    def arrived(rank: int, data: NDArray[np.uint8]) -> None:
        at = now()
        ranks[rank] = _decode(steps, data, rank)
        timeline.work("decode", at, of_rank=rank, bytes=data.size)

    sent_before, at = link.metrics.sent_bytes, now()
    most_bytes = message_bound(step.frame_bound for step in steps)
    what = f"gradients from '{steps[0].request.name}' on"
    shared.exchanges.messages.allgather(message, [most_bytes] * link.size, link, what, arrived)
    timeline.work("exchange", at, Track.EXCHANGE, sent_bytes=link.metrics.sent_bytes - sent_before)
    if failure is None:
        link.metrics.message_bytes += message.size
    return [[part[place] for part in ranks] for place in range(len(steps))], failure


def _agreed_units(steps: Sequence[GatheredGradient], link: Link) -> list[float | None]:
    """Return the largest of all ranks' units for each parameter whose code shares one; None for the others."""
    sharing = [step.parameter.shares_unit for step in steps]
    if not any(sharing):
        return [None] * len(steps)
    units = np.array(
        [step._begin() if shares else 0.0 for step, shares in zip(steps, sharing, strict=True)], np.float32
    )
    what = f"units of gradients from '{steps[0].request.name}' on"
    steps[0].parameter.shared.exchanges.dense("native").allreduce([units], "Max", link, what)
    return [float(unit) if shares else None for unit, shares in zip(units, sharing, strict=True)]


def _parts_of(step: GatheredGradient, payloads: Sequence[bytes | None], link: Link) -> Parts:
    """Return what each rank sent of a parameter whose messages came with the requests."""
    at = now()
    parts: Parts = []
    for rank, payload in enumerate(payloads):
        assert payload is not None
        parts += _decode([step], np.frombuffer(payload, dtype=np.uint8), rank)
    link.timeline.work("decode", at, bytes=sum(len(payload or b"") for payload in payloads))
    return parts


def _decode(steps: Sequence[GatheredGradient], data: NDArray[np.uint8], rank: int) -> Parts:
    # Never raises: the messages of the other ranks are still to come.
    shared = steps[0].parameter.shared
    try:
        frames = read_message(data, steps[0].step.number & 0xFFFFFFFF, shared.plan, len(steps), shared.kernels)
    except MessageError as error:
        return [MessageError(error.reason, rank=rank, parameter=step.parameter.name) for step in steps]
    parts: Parts = []
    for step, frame in zip(steps, frames, strict=True):
        try:
            if isinstance(frame, MessageError):
                raise frame
            parts.append(step.parameter.decode(frame))
        except MessageError as error:
            parts.append(MessageError(error.reason, rank=rank, parameter=step.parameter.name))
    return parts


def _aggregate(step: GatheredGradient, parts: Parts, link: Link) -> Floats | MessageError:
    whole: list[Decoded] = []
    for part in parts:
        if isinstance(part, MessageError):
            return part
        whole.append(part)
    step.parameter.aggregate(whole, step.step, step.gradient)
    step.parameter.sent(whole[link.rank])
    step.parameter.compensate(whole, step.step, step.gradient)
    return step.gradient
