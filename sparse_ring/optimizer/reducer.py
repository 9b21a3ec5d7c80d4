"""From backward hooks to shared gradients: one engine operation a parameter and step."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sparse_ring.engine.operation import Operation
from sparse_ring.exchange.allreduce import Allreduce
from sparse_ring.exchange.rows import RowGradient, Rows
from sparse_ring.gradient_operation import GradientOperation
from sparse_ring.observe.timeline import Track, now
from sparse_ring.optimizer.overlap import Overlap
from sparse_ring.optimizer.record import Record
from sparse_ring.optimizer.rows import rows_of, sparse_gradient
from sparse_ring.pipeline import ParameterPipeline, Pipeline
from sparse_ring.plan import Described, Plan, PlannedParameter
from sparse_ring.recipe import Recipe, SparseRecipe
from sparse_ring.session import Session
from sparse_ring.views import Work, dtype_name, expanded_dimensions

NamedWithRecipe = tuple[str, torch.Tensor, Recipe]


class GradientReducer:
    """Hands each gradient to the engine, as soon as backward has made it where the loop allows, and puts the shared one back.

    passes
        Backward passes that accumulate into one step.
    step
        Optimizer steps so far; the recipes' warm-up position.
    """

    def __init__(self, average: bool, passes: int, overlap: Overlap, session: Session) -> None:
        self.session, self.average, self.passes, self.overlap = session, average, passes, overlap
        self.step = 0
        self.plan = Plan(())
        self.records: list[Record] = []
        self.before_submit: Callable[[Record], None] = lambda record: None
        self.found_rows: Callable[[Record], None] = lambda record: None
        number = session.next_number("optimizer")
        # Two optimizers may be in flight at once, with equal names in both.
        self._prefix = "" if number == 1 else f"optimizer.{number}."
        self._shared = Pipeline(self.plan.hash, session.kernels, session.exchanges.messages, self._prefix)

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
        self._hook_all()

    def synchronize(self) -> None:
        """Wait until every gradient is shared; gradients that no backward has reached are asked for at the other ranks.

        A parameter without gradient on all ranks keeps ``.grad = None``; on some, it counts as zeros there.
        """
        self._hook_all()
        timeline = self.session.timeline
        timeline.span(Track.TRAINING, "forward and backward", timeline.resumed)
        began = now()
        self.session.metrics.start_waiting()
        missing = [record for record in self.records if record.handle is None]
        if any(record.gradient_was_changed() for record in missing):
            self.overlap.refuse("gradients are changed between backward() and step()")
        operations = []
        for record in missing:
            staging = now()
            operations.append(self._operation(record))
            timeline.span(Track.TRAINING, f"submit {record.name}", staging)
        handles = self.session.submit_all(operations)
        for record, handle in zip(missing, handles, strict=True):
            record.handle, record.at_step = handle, True
        failure: Exception | None = None
        for record in self.records:
            try:
                self._finish(record)
            except Exception as error:
                failure = failure or error
        self.session.metrics.stop_waiting()
        timeline.span(Track.TRAINING, "wait", began)
        timeline.resumed = now()
        if failure is not None:
            raise failure

    def step_done(self) -> None:
        """Count an optimizer step."""
        self.step += 1
        self.overlap.step_done()
        self.session.step_done(self.step == self.plan.warmup, self._residual_norm)

    def key(self, name: str) -> str:
        """Return the name of an operation that belongs to this optimizer."""
        return self._prefix + name

    def in_flight(self) -> bool:
        """Return whether gradients are being shared."""
        return any(record.handle is not None for record in self.records)

    def discard(self, reason: str) -> None:
        """Forget gradients that backward has made and no step has used; a loop that does this gets no overlap."""
        if any(record.passes for record in self.records):
            self.overlap.refuse(reason)
            for record in self.records:
                record.passes = 0

    def close(self) -> None:
        """Take the hooks off the parameters."""
        for record in self.records:
            if record.hook is not None:
                record.hook.remove()

    def _way(self, planned: PlannedParameter, key: str) -> ParameterPipeline | None:
        if not planned.in_message or not isinstance(planned.recipe, SparseRecipe):
            return None
        return ParameterPipeline(
            self._shared,
            planned.recipe,
            planned.number,
            planned.name,
            planned.shape,
            sparse=planned.sparse,
            key=key,
        )

    def _residual_norm(self) -> float:
        # Between two steps nothing is in flight, and the residuals are not the engine's.
        norms = [record.pipeline.residual_norm() for record in self.records if record.pipeline is not None]
        return math.hypot(*norms)

    def _hook_all(self) -> None:
        # A parameter that is frozen now may be unfrozen later; torch allows no hook before that.
        for record in self.records:
            if record.hook is None and record.parameter.requires_grad:
                register: Any = record.parameter.register_post_accumulate_grad_hook
                record.hook = register(self._hook(record))

    def _hook(self, record: Record) -> Callable[[torch.Tensor], None]:
        timeline, submitting = self.session.timeline, f"submit {record.name}"

        def hook(parameter: torch.Tensor) -> None:
            _refuse_compiled_autograd()
            record.passes += 1
            record.see_gradient()
            if record.handle is not None:
                raise RuntimeError(
                    f"Parameter '{record.name}': backward has reached it {record.passes} times since the last step(), but "
                    f"backward_passes_per_step is {self.passes}. Call step() more often, give backward_passes_per_step, or "
                    f"give overlap=False to share gradients in step() only."
                )
            if record.passes > self.passes:
                self.overlap.refuse(f"backward reaches '{record.name}' more often than backward_passes_per_step")
            elif record.passes == self.passes and self.overlap.early:
                began = now()
                record.handle, record.at_step = self.session.submit(self._operation(record)), False
                timeline.span(Track.TRAINING, submitting, began)

        return hook

    def _operation(self, record: Record) -> Operation:
        self.before_submit(record)
        gradient = record.parameter.grad
        if gradient is not None and gradient.layout == torch.sparse_coo:
            record.work = None
            return self._row_operation(record, gradient)
        absent = gradient is None
        # Zeros that nobody reads take no memory: they are only mapped.
        tensor = torch.zeros_like(record.parameter) if gradient is None else gradient
        if expanded_dimensions(tensor):
            # Other ranks' gradients, or a selection of this one, are not constant there: the shared one needs every element.
            tensor = tensor.contiguous()
        dtype = torch.float32 if record.pipeline is not None else tensor.dtype
        record.work = Work(tensor, record.name, in_place=True, dtype=dtype)
        operation = self._dense_operation(record, record.work.array(), absent)
        if absent and record.parameter.dim() > 1:
            # The other ranks may have sparse gradients, of which this rank has no row.
            operation.alternative = lambda: self._row_operation(record, None)
        return operation

    def _dense_operation(self, record: Record, array: NDArray[Any], absent: bool) -> Operation:
        if record.pipeline is not None:
            flat, momentum, nesterov = array.reshape(-1), record.momentum, record.nesterov
            return GradientOperation(record.pipeline, flat, self.step, momentum, nesterov, self.average, absent)
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

    def _finish(self, record: Record) -> None:
        assert record.handle is not None
        handle, work = record.handle, record.work
        changed = not record.at_step and record.gradient_was_changed()
        record.forget_gradient()
        record.handle, record.work, record.passes = None, None, 0
        shared = handle.wait()
        if changed:
            raise RuntimeError(
                f"The gradient of parameter '{record.name}' was changed between backward() and step(), while it was being "
                f"exchanged. To change shared gradients (clip_grad_norm_, say), call optimizer.synchronize() first, then "
                f"step() within skip_synchronize(); to change each rank's own, give overlap=False to DistributedOptimizer."
            )
        if isinstance(shared, Rows):
            self.found_rows(record)
            record.parameter.grad = sparse_gradient(record.parameter, shared)
        elif shared is not None and work is not None:
            record.parameter.grad = work.result()


def _refuse_compiled_autograd() -> None:
    # torch has no public way to ask; the module is loaded where compiled autograd is in use.
    compiled = sys.modules.get("torch._dynamo.compiled_autograd")
    if compiled is not None and getattr(compiled, "in_compiled_autograd_region", False):
        raise RuntimeError(
            "Compiled autograd runs gradient hooks inside a graph, where gradients can't be exchanged. Turn it off "
            "(torch._dynamo.config.compiled_autograd = False); torch.compile of the model alone works."
        )
