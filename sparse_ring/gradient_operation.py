"""One optimizer step of one parameter as the engine's operation; several run together as one message a rank."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from sparse_ring.engine.link import Link
from sparse_ring.engine.operation import Agreed, Operation, Request
from sparse_ring.errors import MessageError
from sparse_ring.message import read_message
from sparse_ring.message.writer import message_bound
from sparse_ring.observe.timeline import Track, now
from sparse_ring.pipeline import Decoded, Floats, ParameterPipeline

logger = logging.getLogger(__name__)

MOST_NAMES = 5

# What each rank sent of one parameter, by rank; an error where it was damaged.
Parts = list[Decoded | MessageError]


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
    prepares: ClassVar[bool] = True
    gathers: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._frame: NDArray[np.uint8] | None = None
        self._failure: Exception | None = None
        self._attached_bytes = 0
        parameter = self.parameter
        keep = parameter.keep(self.step)
        # Most steps ask for what the step before asked for: the same object, which is also quick to compare.
        key = (parameter.shared.plan, self.average, keep, self.absent)
        asked = parameter.asked.get(key)
        if asked is None:
            asked = parameter.asked[key] = (self._describe(keep), parameter.frame_bound(keep))
        self.request, self.frame_bound = asked
        self.nbytes = parameter.final_bytes

    def _describe(self, keep: int) -> Request:
        parameter = self.parameter
        operation = "Average" if self.average else "Sum"
        return Request(
            name=parameter.key,
            kind=self.KIND,
            dtype="float32",
            shape=parameter.shape,
            # How many elements are kept changes during the warm-up, and with it the room that a message needs.
            detail=f"op={operation} {parameter.recipe!r} plan={parameter.shared.plan:08x} keep={keep} at this step",
            absent=self.absent,
        )

    @property
    def fusion_key(self) -> Hashable:
        """Parameters of one optimizer share messages."""
        shared = self.parameter.shared
        return self.KIND, shared.owner, shared.plan, self.average

    def prepare(self, link: Link) -> None:
        """Compress the gradient into a frame. An absent one waits until it is known whether another rank has one."""
        if not self.absent and self._frame is None:
            began, link.timeline.bucket = time.perf_counter(), self.request.name
            self._compress(link)
            link.metrics.add_exchange(began)

    def _compress(self, link: Link) -> None:
        if self._frame is not None or self._failure is not None:
            return
        at, writer, nbytes = now(), self.parameter.shared.writer, 0
        writer.begin(0, 0)
        try:
            if self.absent:
                self.gradient.fill(0.0)
            self.parameter.compress(self.gradient, self.step, self.momentum, self.nesterov, link.metrics)
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
        steps = [cast(GradientOperation, agreed.operation) for agreed in batch]
        here = [bool(agreed.payloads) and None not in agreed.payloads for agreed in batch]
        left = [step for step, rode in zip(steps, here, strict=True) if not rode]
        exchanged, failure = _exchange(left, link) if left else ([], None)
        travelled = iter(exchanged)
        parts = [
            _parts_of(step, agreed.payloads, link) if rode else next(travelled)
            for step, agreed, rode in zip(steps, batch, here, strict=True)
        ]
        _warn_nonfinite(steps, parts)
        at = now()
        results: list[Any] = [
            # The other ranks have the frames that rode, whatever became of the message.
            failure if failure is not None and not rode else _aggregate(step, part, link)
            for step, part, rode in zip(steps, parts, here, strict=True)
        ]
        link.timeline.work("aggregate", at)
        _count(steps, link, sent_before, began)
        return results


def _message(steps: Sequence[GradientOperation]) -> NDArray[np.uint8]:
    """Return this rank's frames as one message, valid until the next."""
    shared = steps[0].parameter.shared
    shared.writer.begin(steps[0].step & 0xFFFFFFFF, shared.plan)
    for step in steps:
        assert step._frame is not None
        shared.writer.add(step._frame)
    return shared.writer.finish()


def _exchange(steps: Sequence[GradientOperation], link: Link) -> tuple[list[Parts], Exception | None]:
    """Bring every rank's message of these to every rank; returns for each step what each rank sent.

    Where compressing failed on this rank, its message has no frames: the others refuse it instead of waiting for it. The error is
    returned as well.
    """
    shared, timeline = steps[0].parameter.shared, link.timeline
    for step in steps:
        step._compress(link)
    failure = next((step._failure for step in steps if step._failure is not None), None)
    if failure is None:
        message = _message(steps)
    else:
        shared.writer.begin(steps[0].step & 0xFFFFFFFF, shared.plan)
        message = shared.writer.finish()
    ranks: list[Parts] = [[] for _ in range(link.size)]

    def arrived(rank: int, data: NDArray[np.uint8]) -> None:
        at = now()
        ranks[rank] = _decode(steps, data, rank)
        timeline.work("decode", at, of_rank=rank, bytes=data.size)

    sent_before, at = link.metrics.sent_bytes, now()
    most_bytes = message_bound(step.frame_bound for step in steps)
    what = f"gradients from '{steps[0].request.name}' on"
    shared.exchange.allgather(message, [most_bytes] * link.size, link, what, arrived)
    timeline.work("exchange", at, Track.EXCHANGE, sent_bytes=link.metrics.sent_bytes - sent_before)
    if failure is None:
        link.metrics.message_bytes += message.size
    return [[part[place] for part in ranks] for place in range(len(steps))], failure


def _parts_of(step: GradientOperation, payloads: Sequence[bytes | None], link: Link) -> Parts:
    """Return what each rank sent of a parameter whose messages came with the requests."""
    at = now()
    parts: Parts = []
    for rank, payload in enumerate(payloads):
        assert payload is not None
        parts += _decode([step], np.frombuffer(payload, dtype=np.uint8), rank)
    link.timeline.work("decode", at, bytes=sum(len(payload or b"") for payload in payloads))
    return parts


def _decode(steps: Sequence[GradientOperation], data: NDArray[np.uint8], rank: int) -> Parts:
    # Never raises: the messages of the other ranks are still to come.
    shared = steps[0].parameter.shared
    try:
        frames = read_message(data, steps[0].step & 0xFFFFFFFF, shared.plan, len(steps), shared.kernels)
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


def _aggregate(step: GradientOperation, parts: Parts, link: Link) -> Floats | MessageError:
    whole: list[Decoded] = []
    for part in parts:
        if isinstance(part, MessageError):
            return part
        whole.append(part)
    step.parameter.aggregate(whole, 1.0 / link.size if step.average else 1.0, step.gradient)
    step.parameter.sent(whole[link.rank])
    return step.gradient


def _warn_nonfinite(steps: Sequence[GradientOperation], parts: Sequence[Parts]) -> None:
    """Tell each rank's first non-finite gradients, then the 2nd, 4th, 8th, … time, so that a run of them fills no disk."""
    counts = steps[0].parameter.shared.nonfinite
    for rank in range(len(parts[0])):
        names = [f"'{step.parameter.name}'" for step, part in zip(steps, parts, strict=True) if part[rank] is None]
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


def _count(steps: Sequence[GradientOperation], link: Link, sent_before: int, began: float) -> None:
    metrics = link.metrics
    dense = 4 * sum(step.parameter.numel for step in steps)
    attached = sum(step._attached_bytes for step in steps)
    metrics.dense_bytes += dense
    metrics.message_bytes += attached
    metrics.ring_bytes += 2 * (link.size - 1) / link.size * dense
    metrics.gradient_wire_bytes += metrics.sent_bytes - sent_before + attached * (link.size - 1)
    metrics.add_exchange(began)
