"""From backward hooks to shared gradients: one engine operation a parameter and step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sparse_ring.engine.handle import Handle
from sparse_ring.engine.operation import Operation
from sparse_ring.exchange.allreduce import Allreduce
from sparse_ring.observe.timeline import Track, now
from sparse_ring.pipeline import GradientOperation, ParameterPipeline, Pipeline
from sparse_ring.plan import Plan, PlannedParameter
from sparse_ring.recipe import Recipe, SparseRecipe
from sparse_ring.session import Session
from sparse_ring.views import Work, dtype_name


class Record:
    """One parameter of the optimizer: its way, what is in flight, how often backward has reached it since the last step.

    pipeline
        Its way through messages; None for a parameter that takes the dense ring.
    momentum, nesterov
        What the local velocity uses this step; 0 where the optimizer keeps its momentum.
    """

    def __init__(self, parameter: torch.Tensor, planned: PlannedParameter, pipeline: ParameterPipeline | None) -> None:
        self.parameter, self.planned, self.pipeline = parameter, planned, pipeline
        self.momentum, self.nesterov = 0.0, False
        self.passes = 0
        self.handle: Handle | None = None
        self.work: Work | None = None
        self.hook: torch.utils.hooks.RemovableHandle | None = None

    @property
    def name(self) -> str:
        """The parameter's name, as in errors."""
        return self.planned.name


class GradientReducer:
    """Hands each gradient to the engine as soon as backward has made it, and puts the shared gradient in its place.

    passes
        Backward passes that accumulate into one step.
    step
        Optimizer steps so far; the recipe's warm-up position.
    """

    def __init__(
        self, named: Sequence[tuple[str, torch.Tensor]], recipe: Recipe, average: bool, passes: int, session: Session
    ) -> None:
        self.session, self.recipe, self.average, self.passes = session, recipe, average, passes
        self.step = 0
        described = [(name, tuple(tensor.shape), dtype_name(tensor.dtype)) for name, tensor in named]
        self.plan = Plan.of(recipe, described)
        self.records: list[Record] = []
        shared = None
        if isinstance(recipe, SparseRecipe):
            shared = Pipeline(recipe, self.plan.hash, session.kernels, session.exchanges.messages)
        for (_, tensor), planned in zip(named, self.plan.parameters, strict=True):
            pipeline = None
            if shared is not None and planned.in_message:
                pipeline = ParameterPipeline(
                    shared, planned.number, planned.name, planned.shape, planned.numel, planned.sparse
                )
            self.records.append(Record(tensor, planned, pipeline))
        self.before_submit: Callable[[Record], None] = lambda record: None
        self._hook_all()

    def synchronize(self) -> None:
        """Wait until every gradient is shared; gradients that no backward has reached are asked for at the other ranks.

        A parameter without gradient on all ranks keeps ``.grad = None``; on some, it counts as zeros there.
        """
        self._hook_all()
        timeline = self.session.timeline
        timeline.span(Track.TRAINING, "forward and backward", timeline.resumed)
        began = now()
        missing = [record for record in self.records if record.handle is None]
        handles = self.session.submit_all([self._operation(record) for record in missing])
        for record, handle in zip(missing, handles, strict=True):
            record.handle = handle
        failure: Exception | None = None
        for record in self.records:
            try:
                self._finish(record)
            except Exception as error:
                failure = failure or error
        self.session.metrics.exposed_seconds += (now() - began) / 1e9
        timeline.span(Track.TRAINING, "wait", began)
        timeline.resumed = now()
        if failure is not None:
            raise failure

    def step_done(self) -> None:
        """Count an optimizer step."""
        self.step += 1
        self.session.step_done(self.step == self.recipe.warmup, self._residual_norm)

    def in_flight(self) -> bool:
        """Return whether gradients are being shared."""
        return any(record.handle is not None for record in self.records)

    def close(self) -> None:
        """Take the hooks off the parameters."""
        for record in self.records:
            if record.hook is not None:
                record.hook.remove()

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
            record.passes += 1
            if record.handle is not None or record.passes > self.passes:
                raise RuntimeError(
                    f"Parameter '{record.name}': backward has reached it {record.passes} times since the last step(), but "
                    f"backward_passes_per_step is {self.passes}. Call step() more often, or give backward_passes_per_step."
                )
            if record.passes == self.passes:
                began = now()
                record.handle = self.session.submit(self._operation(record))
                timeline.span(Track.TRAINING, submitting, began)

        return hook

    def _operation(self, record: Record) -> Operation:
        self.before_submit(record)
        gradient = record.parameter.grad
        if gradient is not None and gradient.layout != torch.strided:
            raise ValueError(
                f"Parameter '{record.name}' has a {gradient.layout} gradient, which is not supported; "
                f"build its embedding with sparse=False."
            )
        # Zeros that nobody reads take no memory: they are only mapped.
        tensor = torch.zeros_like(record.parameter) if gradient is None else gradient
        dtype = torch.float32 if record.pipeline is not None else tensor.dtype
        record.work = Work(tensor, record.name, in_place=True, dtype=dtype)
        array = record.work.array()
        if record.pipeline is None:
            return self._dense_operation(record, array, absent=gradient is None)
        return GradientOperation(
            record.pipeline,
            array.reshape(-1),
            self.step,
            record.momentum,
            record.nesterov,
            self.average,
            absent=gradient is None,
        )

    def _dense_operation(self, record: Record, array: NDArray[Any], absent: bool) -> Operation:
        bits = record.parameter.dtype == torch.bfloat16
        return Allreduce(
            record.name,
            array,
            "Average" if self.average else "Sum",
            exchanges=self.session.exchanges,
            wire=self.recipe.wire if array.dtype == np.float32 else "native",
            absent=absent,
            gradient=True,
            dtype="bfloat16" if bits else None,
        )

    def _finish(self, record: Record) -> None:
        assert record.handle is not None
        assert record.work is not None
        handle, work = record.handle, record.work
        record.handle, record.work, record.passes = None, None, 0
        if handle.wait() is not None:
            record.parameter.grad = work.result()
