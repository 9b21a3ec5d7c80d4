"""Gradients from backward's hooks on the parameters, or all together from ``step()``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from sparse_ring.engine.operation import Operation
from sparse_ring.observe.timeline import Track, now
from sparse_ring.optimizer.overlap import Overlap
from sparse_ring.optimizer.record import Record
from sparse_ring.optimizer.reducer import GradientReducer
from sparse_ring.session import Session


class HookReducer(GradientReducer):
    """Hands each gradient over as soon as backward has made it, where the loop allows, else in ``synchronize()``.

    passes
        Backward passes that accumulate into one step.
    overlap
        Whether gradients may leave before ``step()``.
    """

    def __init__(self, average: bool, passes: int, overlap: Overlap, session: Session) -> None:
        super().__init__(average, session)
        self.passes, self.overlap = passes, overlap

    def synchronize(self) -> None:
        """Wait until every gradient is shared; gradients that no backward has reached are asked for at the other ranks.

        A parameter without gradient on all ranks keeps ``.grad = None``; on some, it counts as zeros there.
        """
        self.watch()
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
            if timeline.on:
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

    def in_flight(self) -> bool:
        """Return whether gradients are being shared."""
        return any(record.handle is not None for record in self.records)

    def discard(self, reason: str) -> None:
        """Forget gradients that backward has made and no step has used; a loop that does this gets no overlap."""
        if any(record.passes for record in self.records):
            self.overlap.refuse(reason)
            for record in self.records:
                record.passes = 0

    def step_done(self) -> None:
        """Count an optimizer step."""
        super().step_done()
        self.overlap.step_done()

    def set_passes(self, passes: int) -> None:
        """Let ``passes`` backward passes accumulate into one step, from the next step on."""
        self.passes = passes

    def prepare_unscaling(self) -> None:
        """Keep gradients until ``step()`` from now on; RuntimeError where some have left."""
        self.overlap.refuse("a GradScaler wants to see them all first")
        if self.in_flight():
            raise RuntimeError(
                "A GradScaler was used for the first time after two steps without one, while gradients are being "
                "exchanged. Give overlap=False to DistributedOptimizer."
            )

    def close(self) -> None:
        """Take the hooks off the parameters."""
        for record in self.records:
            if record.hook is not None:
                record.hook.remove()

    def watch(self) -> None:
        """Hook the parameters that have no hook yet."""
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
        gradient = record.parameter.grad
        if gradient is None:
            # Zeros that nobody reads take no memory: they are only mapped.
            return self.operation(record, torch.zeros_like(record.parameter), absent=True)
        return self.operation(record, gradient)

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
        gradient = self.result(record, work, shared)
        if gradient is not None:
            record.parameter.grad = gradient


def _refuse_compiled_autograd() -> None:
    # torch has no public way to ask; the module is loaded where compiled autograd is in use.
    compiled = sys.modules.get("torch._dynamo.compiled_autograd")
    if compiled is not None and getattr(compiled, "in_compiled_autograd_region", False):
        raise RuntimeError(
            "Compiled autograd runs gradient hooks inside a graph, where gradients can't be exchanged. Turn it off "
            "(torch._dynamo.config.compiled_autograd = False); torch.compile of the model alone works."
        )
