"""From gradients to engine operations, one a parameter and step, and back; when they leave is for the subclasses."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sparse_ring.engine.operation import Operation
from sparse_ring.exchange.allreduce import Allreduce
from sparse_ring.exchange.rows import RowGradient, Rows
from sparse_ring.gradient import OptimizerStep, ParameterPipeline, Pipeline, pipeline_of
from sparse_ring.optimizer.record import Record
from sparse_ring.optimizer.rows import rows_of, sparse_gradient
from sparse_ring.plan import Described, Plan, PlannedParameter
from sparse_ring.recipe import Recipe
from sparse_ring.session import Session
from sparse_ring.views import Work, dtype_name, expanded_dimensions

NamedWithRecipe = tuple[str, torch.Tensor, Recipe]


class GradientReducer(ABC):
    """Hands each gradient to the engine and puts the shared one back; the parameters of one optimizer.

    step
        Optimizer steps so far; the recipes' warm-up position.
    averages_every_loss
        Whether ``step(closure)`` averages the loss even for an optimizer that does not decide by it.
    """

    averages_every_loss = True

    def __init__(self, average: bool, session: Session) -> None:
        self.session, self.average = session, average
        self.step = 0
        self.plan = Plan(())
        self.records: list[Record] = []
        self.before_submit: Callable[[Record], None] = lambda record: None
        self.found_rows: Callable[[Record], None] = lambda record: None
        number = session.next_number("optimizer")
        # Two optimizers may be in flight at once, with equal names in both.
        self._prefix = "" if number == 1 else f"optimizer.{number}."
        self._shared = Pipeline(
            self.plan.hash, session.kernels, session.exchanges, self._prefix, session.rank, session.size
        )

    def add(self, named: Sequence[NamedWithRecipe]) -> None:
        """Take in parameters; on all ranks alike, between steps."""
        described = [Described(one.name, one.shape, one.dtype, one.recipe) for one in self.plan.parameters]
        for name, tensor, recipe in named:
            described.append(Described(name, tuple(tensor.shape), dtype_name(tensor.dtype), recipe))
        self.plan = Plan.of(described)
        self._shared.plan = self.plan.hash
        for (_, tensor, _), planned in zip(named, self.plan.parameters[len(self.records) :], strict=True):
            key = self.key(planned.name)
            self.records.append(Record(tensor, planned, key, self._way(planned, key)))
        self.watch()

    def watch(self) -> None:  # noqa: B027
        """Put hooks on the parameters that need them; called again whenever parameters may have changed."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until every gradient is shared; afterwards ``.grad`` is the same on all ranks.

        Raises the first failed operation's error, once all of them have ended.
        """

    @abstractmethod
    def in_flight(self) -> bool:
        """Return whether gradients are being shared."""

    @abstractmethod
    def discard(self, reason: str) -> None:
        """Forget gradients that backward has made and no step has used; ``reason`` says why, as in a log line."""

    @abstractmethod
    def set_passes(self, passes: int) -> None:
        """Let ``passes`` backward passes accumulate into one step, from the next step on."""

    @abstractmethod
    def prepare_unscaling(self) -> None:
        """Raise where a GradScaler's scale cannot be undone now, because gradients have left with it."""

    @abstractmethod
    def close(self) -> None:
        """Take the hooks off the parameters."""

    def step_done(self) -> None:
        """Count an optimizer step."""
        self.step += 1
        self.session.step_done(self.step == self.plan.warmup, self._residual_norm)

    def key(self, name: str) -> str:
        """Return the name of an operation that belongs to this optimizer."""
        return self._prefix + name

    def _way(self, planned: PlannedParameter, key: str) -> ParameterPipeline | None:
        return pipeline_of(
            self._shared,
            planned.recipe,
            planned.number,
            planned.name,
            planned.shape,
            key,
            compressed=planned.compressed,
            in_message=planned.in_message,
        )

    def _residual_norm(self) -> float:
        # Between two steps nothing is in flight, and the residuals are not the engine's.
        norms = [record.pipeline.residual_norm() for record in self.records if record.pipeline is not None]
        return math.hypot(*norms)

    def operation(self, record: Record, gradient: torch.Tensor, absent: bool = False) -> Operation:
        """Return the operation that shares a gradient in place; ``absent``: it is a place for the others' only."""
        self.before_submit(record)
        if gradient.layout == torch.sparse_coo:
            record.work = None
            return self._row_operation(record, gradient)
        if not gradient.is_contiguous() and expanded_dimensions(gradient):
            # Other ranks' gradients, or a selection of this one, are not constant there: the shared one needs every element.
            gradient = gradient.contiguous()
        dtype = torch.float32 if record.pipeline is not None else gradient.dtype
        record.work = Work(gradient, record.name, in_place=True, dtype=dtype)
        operation = self._dense_operation(record, record.work.array(), absent)
        if absent and record.parameter.dim() > 1:
            # The other ranks may have sparse gradients, of which this rank has no row.
            operation.alternative = lambda: self._row_operation(record, None)
        return operation

    def _dense_operation(self, record: Record, array: NDArray[Any], absent: bool) -> Operation:
        if record.pipeline is not None:
            step = OptimizerStep(self.step, record.momentum, record.nesterov, record.learning_rate, self.average)
            return record.pipeline.operation(array.reshape(-1), step, absent)
        return Allreduce(
            record.key,
            array,
            "Average" if self.average else "Sum",
            exchanges=self.session.exchanges,
            wire=record.recipe.wire if array.dtype == np.float32 else "native",
            absent=absent,
            gradient=True,
            dtype="bfloat16" if record.parameter.dtype == torch.bfloat16 else None,
        )

    def _row_operation(self, record: Record, gradient: torch.Tensor | None) -> Operation:
        rows = rows_of(record.parameter, gradient, record.name)
        return RowGradient(
            record.key,
            rows,
            record.parameter.shape[0],
            average=self.average,
            exchanges=self.session.exchanges,
            dtype="float32" if record.pipeline is not None else dtype_name(record.parameter.dtype),
        )

    def result(self, record: Record, work: Work | None, shared: Any) -> torch.Tensor | None:
        """Return an operation's result as a gradient; None where no rank had one."""
        if isinstance(shared, Rows):
            self.found_rows(record)
            return sparse_gradient(record.parameter, shared)
        return None if shared is None or work is None else work.result()
