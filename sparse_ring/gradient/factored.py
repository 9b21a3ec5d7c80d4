"""A matrix as the product of two thin ones, which are added on a ring (Vogels, Karimireddy, Jaggi, PowerSGD, NeurIPS 2019).

With M what was accumulated of a gradient, as ``rows`` times ``columns``, and Q the factor of the step before (algorithm 1)::

    P  = sum over ranks of M Q
    P^ = P with orthonormal columns
    Q  = sum over ranks of M^T P^
    M^ = P^ Q^T

Every rank takes an equal share of ``M^`` off its own M (algorithm 2: the error stays), so what was sent and what waits adds up to
what came in, over all ranks. ``rank * (rows + columns)`` elements travel. Both sums come from the same ring on all ranks, and
every product from the same kernels, so replicas stay identical.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from sparse_ring.engine.link import Link
from sparse_ring.engine.operation import Agreed, Operation
from sparse_ring.errors import MessageError
from sparse_ring.gradient.base import Floats, GradientOperation, OptimizerStep, ParameterPipeline, Pipeline
from sparse_ring.gradient.report import count_exchange, report_nonfinite
from sparse_ring.gradient.summed import FAILED, NONFINITE, failures, flags_of, summed
from sparse_ring.observe.timeline import Track, now
from sparse_ring.recipe.factored import matrix_shape

if TYPE_CHECKING:
    from sparse_ring.recipe import FactoredRecipe


# Products with elements up to here are finite, whatever is trained.
MOST = 1e18


class FactoredParameter(ParameterPipeline):
    """A parameter as a matrix, with its residual and the factor that the next step starts from.

    factor
        Q, ``float32[rank * columns]``, column after column; the same on all ranks.
    """

    def __init__(
        self,
        shared: Pipeline,
        recipe: FactoredRecipe,
        number: int,
        name: str,
        shape: tuple[int, ...],
        key: str | None = None,
    ) -> None:
        super().__init__(shared, recipe, number, name, shape, key)
        self.rows, self.columns = matrix_shape(shape)
        self.rank, self._seed = recipe.rank, recipe.seed
        self.feedback = recipe.error_feedback(self.numel, shared.kernels)
        self.factor = self._first_factor()

    @property
    def shape_and_rank(self) -> tuple[int, int, int]:
        """Rows, columns, and columns of the factors."""
        return self.rows, self.columns, self.rank

    def operation(self, gradient: Floats, step: OptimizerStep, absent: bool = False) -> Operation:
        """See :meth:`ParameterPipeline.operation`."""
        return FactoredGradient(self, gradient, step, absent)

    def _first_factor(self) -> Floats:
        generator = np.random.default_rng([self._seed, self.number])
        return generator.standard_normal(self.rank * self.columns).astype(np.float32)

    def start_from(self, factor: Floats) -> None:
        """Let the next step start from a factor; a column that has vanished starts afresh, as it could never come back."""
        columns = factor.reshape(self.rank, self.columns)
        gone = ~columns.any(axis=1)
        if gone.any():
            columns[gone] = self._first_factor().reshape(columns.shape)[gone]
        self.factor = factor

    def state_dict(self) -> dict[str, Any]:
        """Return ``residual`` and ``factor``."""
        return {**super().state_dict(), "factor": self.factor}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See :meth:`ParameterPipeline.load_state_dict`."""
        arrays = dict(state)
        factor = arrays.pop("factor", None)
        super().load_state_dict(arrays)
        if factor is None:
            self.factor = self._first_factor()
            return
        if factor.size != self.factor.size:
            raise ValueError(f"factor has {factor.size} elements, but {self.factor.size} at rank {self.rank}.")
        self.factor = np.array(factor, dtype=np.float32)


class FactoredGradient(GradientOperation):
    """One step of one parameter as a product of factors; see :class:`GradientOperation`."""

    KIND: ClassVar[str] = "gradient in factors"

    def __init__(
        self, parameter: FactoredParameter, gradient: Floats, step: OptimizerStep, absent: bool = False
    ) -> None:
        super().__init__(parameter, gradient, step, absent)
        self.parameter = parameter
        self.nbytes = 4 * parameter.rank * (parameter.rows + parameter.columns)
        self._flag = 0.0
        self._failure: Exception | None = None
        self._left: Floats | None = None

    def take_in(self, link: Link) -> None:
        """See :meth:`GradientOperation.take_in`."""
        if self._left is not None:
            return
        at, parameter = now(), self.parameter
        self._left = np.zeros(parameter.rank * parameter.rows, dtype=np.float32)
        try:
            if self.absent:
                self.gradient.fill(0.0)
            self._accumulate()
            if not self._flag:
                kernels, factor = parameter.shared.kernels, parameter.factor
                kernels.skinny_right(self._matrix, *parameter.shape_and_rank, factor, self._left)
                if not kernels.all_finite(self._left):
                    # What is so large would never come through, and nothing else beside it.
                    parameter.drop_overflow(MOST)
                    self._flag = NONFINITE
            link.metrics.nonfinite_frames += self._flag == NONFINITE
            link.metrics.sparse_elements += parameter.numel
        except Exception as error:
            traceback.clear_frames(error.__traceback__)
            self._failure, self._flag = error, FAILED
        link.timeline.work("multiply", at)

    def _accumulate(self) -> None:
        parameter, feedback = self.parameter, self.parameter.feedback
        kernels = parameter.shared.kernels
        assert feedback is not None
        if not kernels.all_finite(self.gradient):
            self._flag = NONFINITE
            return
        feedback.accumulate(self.gradient, self.step.momentum, self.step.nesterov)
        if not kernels.all_finite(feedback.accumulated):
            parameter.drop_overflow()
            self._flag = NONFINITE

    @property
    def _matrix(self) -> Floats:
        assert self.parameter.feedback is not None
        return self.parameter.feedback.accumulated

    @classmethod
    def run(cls, batch: Sequence[Agreed], link: Link) -> list[Any]:
        """Add both factors on the ring, one after the other, and put their product in the gradient's place."""
        began, sent_before = time.perf_counter(), link.metrics.sent_bytes
        steps = [cast(FactoredGradient, agreed.operation) for agreed in batch]
        for step in steps:
            step.take_in(link)
        at = now()
        lefts = _added([step._left for step in steps], steps, link)
        rights = [step._right(left) for step, left in zip(steps, lefts, strict=True)]
        sums = _added(rights, steps, link)
        link.timeline.work("exchange", at, Track.EXCHANGE, sent_bytes=link.metrics.sent_bytes - sent_before)
        results: list[Any] = [
            step._finish(left, right, link) for step, left, right in zip(steps, lefts, sums, strict=True)
        ]
        for rank in range(link.size):
            missing = [
                step.parameter
                for step, left in zip(steps, lefts, strict=True)
                if flags_of(left, step.parameter.rows * step.parameter.rank, link)[rank] == NONFINITE
            ]
            report_nonfinite(missing, rank, steps[0].step.number)
        count_exchange([step.parameter for step in steps], 0, link, sent_before, began)
        return results

    def _right(self, left: Floats) -> Floats:
        """Return this rank's part of Q, from the sum of P, whose columns become orthonormal in place."""
        parameter, kernels = self.parameter, self.parameter.shared.kernels
        columns = left[: parameter.rank * parameter.rows]
        kernels.orthonormalise(columns, parameter.rows, parameter.rank)
        right = np.zeros(parameter.rank * parameter.columns, dtype=np.float32)
        if not self._flag:
            kernels.skinny_left(self._matrix, *parameter.shape_and_rank, columns, right)
        return right

    def _finish(self, left: Floats, right: Floats, link: Link) -> Floats | Exception:
        parameter = self.parameter
        rows, columns, rank = parameter.rows, parameter.columns, parameter.rank
        failure = self._failure or failures(left, rows * rank, self.step.number, link, parameter.name)
        if failure is not None:
            return failure
        total = right[: columns * rank]
        kernels, feedback = parameter.shared.kernels, parameter.feedback
        assert feedback is not None
        if not kernels.all_finite(total):
            parameter.drop_overflow(MOST)
            return MessageError("the sum of the factors is not finite", parameter=parameter.name)
        finite = link.size - int(np.count_nonzero(flags_of(left, rows * rank, link) == NONFINITE))
        # Each rank that had a part in the sum takes an equal share off, so that nothing is lost or counted twice.
        share = total / np.float32(max(finite, 1))
        # What the fused kernel would take off a residual, error feedback does by itself.
        unused = parameter.shared.scratch.magnitudes(parameter.numel)
        kernels.skinny_outer(left[: rows * rank], share, *parameter.shape_and_rank, unused, self.gradient)
        if not self._flag:
            feedback.sent_all(self.gradient)
        parts = finite / link.size if self.step.average else float(finite)
        if parts != 1.0:
            self.gradient *= np.float32(parts)
        parameter.start_from(share)
        parameter.tell_aggregate(self.gradient, [], self.step)
        link.metrics.kept_elements += rank * (rows + columns)
        link.metrics.value_bytes += 4 * rank * (rows + columns)
        return self.gradient


def _added(own: Sequence[Floats | None], steps: Sequence[FactoredGradient], link: Link) -> list[Floats]:
    """Return, for each parameter, the sum over all ranks of one factor, and the ranks' flags and steps behind it."""
    travelling = []
    for step, values in zip(steps, own, strict=True):
        assert values is not None
        travelling.append(summed(values, values.size, step._flag, step.step.number, link))
    what = f"factors of gradients from '{steps[0].request.name}' on"
    steps[0].parameter.shared.exchanges.dense("native").allreduce(travelling, "Sum", link, what)
    link.metrics.message_bytes += sum(array.nbytes for array in travelling)
    return travelling
