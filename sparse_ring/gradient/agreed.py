"""All ranks send the same positions, so a ring can add their values: ``2 (P - 1) / P`` times ``k`` float32 leave each rank.

Either all ranks draw the positions alike (:func:`drawn_positions`), which costs nothing, or the step's leader picks them from what
it has accumulated and tells the others (CLT-k of Chen et al., ScaleCom, NeurIPS 2020): the coded positions leave the leader once a
rank, and every rank leads in turn.

An element more for each rank travels with a parameter's values, to say that a rank's gradient was not finite, or that it failed.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from sparse_ring.encode import CodecChoice, Nothing
from sparse_ring.engine.link import Link
from sparse_ring.engine.operation import Agreed, Operation
from sparse_ring.errors import MessageError
from sparse_ring.gradient.base import Floats, GradientOperation, OptimizerStep, ParameterPipeline, Pipeline
from sparse_ring.gradient.framed import decoded
from sparse_ring.gradient.report import count_exchange, report_nonfinite
from sparse_ring.gradient.summed import FAILED, NONFINITE, failures, flags_of, summed
from sparse_ring.message import read_message
from sparse_ring.message.writer import frame_bound, message_bound
from sparse_ring.observe.timeline import Track, now
from sparse_ring.sparse import SparseGradient

if TYPE_CHECKING:
    from sparse_ring.recipe import AgreedRecipe

Bytes = NDArray[np.uint8]
Indices = NDArray[np.uint32]


class AgreedParameter(ParameterPipeline):
    """A parameter of which ``keep`` elements travel, at positions that all ranks know."""

    def __init__(
        self,
        shared: Pipeline,
        recipe: AgreedRecipe,
        number: int,
        name: str,
        shape: tuple[int, ...],
        key: str | None = None,
    ) -> None:
        super().__init__(shared, recipe, number, name, shape, key)
        self.seed, self.keep = recipe.seed, recipe.keep(self.numel)
        self.codec = CodecChoice(recipe.position_code, Nothing())
        self.feedback = recipe.error_feedback(self.numel, shared.kernels)
        self.selector = recipe.selector()

    def operation(self, gradient: Floats, step: OptimizerStep, absent: bool = False) -> Operation:
        """See :meth:`ParameterPipeline.operation`."""
        return AgreedGradient(self, gradient, step, absent)

    def detail(self, step: int) -> str:
        """Who leads must be known to all before anything travels."""
        return "" if self.selector is None else f" leader={step % self.shared.size}"

    @property
    def frame_bound(self) -> int:
        """What the frame of its positions takes at most, in bytes."""
        return frame_bound(self.codec.most(self.keep, self.numel))


class AgreedGradient(GradientOperation):
    """One step of one parameter at agreed positions; see :class:`GradientOperation`."""

    KIND: ClassVar[str] = "gradient at agreed positions"

    def __init__(self, parameter: AgreedParameter, gradient: Floats, step: OptimizerStep, absent: bool = False) -> None:
        super().__init__(parameter, gradient, step, absent)
        self.parameter = parameter
        self.nbytes = 4 * parameter.keep
        self._flag = 0.0
        self._failure: Exception | None = None
        self._accumulated = False
        # The leader's positions, coded; an empty, flagged frame where its gradient is not finite.
        self._frame: Bytes | None = None

    def take_in(self, link: Link) -> None:
        """See :meth:`GradientOperation.take_in`."""
        if self._accumulated:
            return
        self._accumulated, at = True, now()
        try:
            if self.absent:
                self.gradient.fill(0.0)
            if not self.parameter.shared.kernels.all_finite(self.gradient):
                self._flag = NONFINITE
            elif self.parameter.selector is None or self.step.number % link.size != link.rank:
                assert self.parameter.feedback is not None
                self.parameter.feedback.accumulate(self.gradient, self.step.momentum, self.step.nesterov)
            else:
                self._lead()
            link.metrics.nonfinite_frames += self._flag == NONFINITE
            link.metrics.sparse_elements += self.parameter.numel
        except Exception as error:
            traceback.clear_frames(error.__traceback__)
            self._failure = error
        link.timeline.work("accumulate", at)

    def _lead(self) -> None:
        parameter, shared = self.parameter, self.parameter.shared
        assert parameter.selector is not None
        assert parameter.feedback is not None
        momentum, nesterov, scratch = self.step.momentum, self.step.nesterov, shared.scratch
        picked = parameter.selector.select(
            parameter.feedback, self.gradient, momentum, nesterov, parameter.keep, shared.kernels, scratch
        )
        shared.writer.begin(0, 0)
        codec = parameter.codec.choose(picked, shared.kernels)
        shared.writer.add_sparse(parameter.number, picked, codec, scratch.decoded[: picked.count])
        self._frame = shared.writer.frames()

    def _drawn(self) -> Indices:
        parameter = self.parameter
        return drawn_positions(parameter.numel, parameter.keep, (parameter.seed, self.step.number, parameter.number))

    @classmethod
    def run(cls, batch: Sequence[Agreed], link: Link) -> list[Any]:
        """Agree on positions, add the values there, put the sums in place."""
        began, sent_before = time.perf_counter(), link.metrics.sent_bytes
        steps = [cast(AgreedGradient, agreed.operation) for agreed in batch]
        for step in steps:
            step.take_in(link)
        at = now()
        positions = _positions(steps, link)
        own = [step._values(where, link) for step, where in zip(steps, positions, strict=True)]
        travelling = [
            summed(values, step.parameter.keep, step._flag, step.step.number, link)
            for step, values in zip(steps, own, strict=True)
        ]
        shared = steps[0].parameter.shared
        what = f"values of gradients from '{steps[0].request.name}' on"
        shared.exchanges.dense("native").allreduce(travelling, "Sum", link, what)
        link.metrics.message_bytes += sum(array.nbytes for array in travelling)
        link.timeline.work("exchange", at, Track.EXCHANGE, sent_bytes=link.metrics.sent_bytes - sent_before)
        results: list[Any] = []
        for step, where, values, total in zip(steps, positions, own, travelling, strict=True):
            keep, name = step.parameter.keep, step.parameter.name
            failure = step._failure or failures(total, keep, step.step.number, link, name)
            results.append(failure or step._finish(cast("Indices", where), values, total, link))
        for rank in range(link.size):
            missing = [
                step.parameter
                for step, total in zip(steps, travelling, strict=True)
                if flags_of(total, step.parameter.keep, link)[rank] == NONFINITE
            ]
            report_nonfinite(missing, rank, steps[0].step.number)
        count_exchange([step.parameter for step in steps], 0, link, sent_before, began)
        return results

    def _values(self, where: Indices | MessageError, link: Link) -> Floats:
        """Return this rank's values at the positions; none where it has nothing to give, and a flag says why."""
        nothing = np.empty(0, dtype=np.float32)
        if isinstance(where, MessageError):
            self._failure = self._failure or where
        if self._failure is not None:
            self._flag = FAILED
        if self._flag or isinstance(where, MessageError):
            return nothing
        assert self.parameter.feedback is not None
        values: Floats = self.parameter.feedback.accumulated[where]
        if self.parameter.shared.kernels.all_finite(values):
            return values
        self.parameter.drop_overflow()
        self._flag = NONFINITE
        link.metrics.nonfinite_frames += 1
        return nothing

    def _finish(self, where: Indices, own: Floats, total: Floats, link: Link) -> Floats:
        parameter, step = self.parameter, self.step
        self.gradient.fill(0.0)
        scale = 1.0 / link.size if step.average else 1.0
        parameter.shared.kernels.scatter_add(self.gradient, where, total[: len(where)], scale)
        feedback = parameter.feedback
        assert feedback is not None
        if not self._flag:
            feedback.sent(SparseGradient(where, own, parameter.numel))
            link.metrics.kept_elements += len(where)
            link.metrics.value_bytes += own.nbytes
        parameter.tell_aggregate(self.gradient, [where], step)
        return self.gradient


def _positions(steps: Sequence[AgreedGradient], link: Link) -> list[Indices | MessageError]:
    """Return the agreed positions of each parameter; an error where the leader's could not be read."""
    led = [step for step in steps if step.parameter.selector is not None]
    told = iter(_told(led, link) if led else [])
    found: list[Indices | MessageError] = []
    for step in steps:
        where = None if step.parameter.selector is None else next(told)
        # A leader without a finite gradient has nothing to pick from.
        found.append(step._drawn() if where is None else where)
    return found


def _told(steps: Sequence[AgreedGradient], link: Link) -> list[Indices | MessageError | None]:
    shared, number = steps[0].parameter.shared, steps[0].step.number
    root = number % link.size
    message = None
    if link.rank == root:
        shared.writer.begin(number & 0xFFFFFFFF, shared.plan)
        for step in steps if all(step._failure is None for step in steps) else ():
            if step._frame is None:
                shared.writer.add_nonfinite(step.parameter.number)
            else:
                shared.writer.add(step._frame)
        message = shared.writer.finish()
        link.metrics.message_bytes += message.size
        link.metrics.index_bytes += message.size
    found: list[Indices | MessageError | None] = []

    def arrived(rank: int, data: Bytes) -> None:
        try:
            frames = read_message(data, number & 0xFFFFFFFF, shared.plan, len(steps), shared.kernels)
        except MessageError as error:
            found.extend(MessageError(error.reason, rank=rank, parameter=step.parameter.name) for step in steps)
            return
        for step, frame in zip(steps, frames, strict=True):
            try:
                if isinstance(frame, MessageError):
                    raise frame
                picked = decoded(frame, step.parameter.number, step.parameter.numel, shared)
                if isinstance(picked, np.ndarray) or (picked is not None and picked.count > step.parameter.keep):
                    raise MessageError(f"has more than the {step.parameter.keep} positions that were agreed")
                found.append(None if picked is None else picked.indices)
            except MessageError as error:
                found.append(MessageError(error.reason, rank=rank, parameter=step.parameter.name))

    most = message_bound(step.parameter.frame_bound for step in steps)
    what = f"positions of gradients from '{steps[0].request.name}' on"
    shared.exchanges.messages.broadcast(message, root, most, link, what, arrived)
    return found


def drawn_positions(numel: int, keep: int, key: tuple[int, int, int]) -> Indices:
    """Return ``keep`` of ``numel`` positions, strictly increasing, the same for the same key on every machine.

    One in each of ``keep`` equal strata, so that they need no sorting and every element has the same chance (up to one part in
    2**32 of a stratum). [ours]

    key
        Seed, optimizer step, number of the parameter.
    """
    strata = np.arange(keep + 1, dtype=np.uint64) * np.uint64(numel) // np.uint64(keep)
    mixed = np.uint64(0)
    with np.errstate(over="ignore"):
        for part in key:
            mixed = _mixed(np.asarray(mixed + np.uint64(part & 0xFFFFFFFFFFFFFFFF) + _GOLDEN))[()]
        random = _mixed(np.arange(keep, dtype=np.uint64) * _GOLDEN + mixed) >> np.uint64(32)
    width = strata[1:] - strata[:-1]
    positions: Indices = (strata[:-1] + (random * width >> np.uint64(32))).astype(np.uint32)
    return positions


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the output function of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: NDArray[np.uint64] = x ^ (x >> np.uint64(31))
    return mixed
