"""Gradients from the buckets of ``DistributedDataParallel``, which decides when they leave."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import torch

from sparse_ring.engine.handle import Handle
from sparse_ring.engine.operation import Operation
from sparse_ring.observe.timeline import Track
from sparse_ring.optimizer.record import Record
from sparse_ring.optimizer.reducer import GradientReducer
from sparse_ring.session import Session

logger = logging.getLogger(__name__)


class BucketReducer(GradientReducer):
    """Shares what DDP's communication hook is given.

    looks_for_unused
        DDP lets a backward pass leave parameters out (``find_unused_parameters``, ``static_graph``): then this one notes which
        parameters it has reached, since a bucket has zeros for the others.
    """

    # Lightning gives every step a closure: that must not cost a round of messages where nobody needs it.
    averages_every_loss = False

    def __init__(self, average: bool, session: Session) -> None:
        super().__init__(average, session)
        self.looks_for_unused = False
        self._exchanged: set[int] = set()
        self._failures: list[BaseException] = []
        self._dropped = False

    def operation_of(self, record: Record, gradient: torch.Tensor) -> Operation:
        """Return the operation that shares a bucket's view of a gradient in place.

        Raises RuntimeError where a recipe with state would be given the same gradients twice.
        """
        key = id(record.parameter)
        if record.pipeline is not None and key in self._exchanged:
            raise RuntimeError(
                f"Parameter '{record.name}': a second backward() has come before optimizer.step(), and DDP shares what the "
                f"first one has shared already, which {record.recipe!r} cannot take twice. Run all backward passes but the "
                f"last within model.no_sync()."
            )
        self._exchanged.add(key)
        absent = self.looks_for_unused and not record.passes
        record.passes = 0
        return self.operation(record, gradient, absent)

    def arrived(self, record: Record, handle: Handle) -> torch.Tensor | None:
        """Return the shared gradient, written into the bucket where it is dense; an error is kept for ``synchronize``."""
        work, record.work = record.work, None
        try:
            return self.result(record, work, handle.wait())
        except BaseException as error:
            self._failures.append(error)
            return None

    def watch(self) -> None:
        """Hook parameters where it matters whether backward reaches them."""
        if not self.looks_for_unused:
            return
        for record in self.records:
            if record.hook is None and record.parameter.requires_grad:
                register: Any = record.parameter.register_hook
                record.hook = register(_counting(record))

    def synchronize(self) -> None:
        """Take note that a step uses the gradients; DDP has waited for them at the end of backward.

        Raises the exchange's first error, and RuntimeError naming a parameter whose gradient has not been exchanged.
        """
        timeline = self.session.timeline
        timeline.span(Track.TRAINING, "forward and backward", timeline.resumed)
        failures, exchanged = self._failures, self._exchanged
        self._failures, self._exchanged = [], set()
        if failures:
            raise failures[0]
        for record in self.records:
            if record.parameter.grad is not None and id(record.parameter) not in exchanged:
                raise RuntimeError(
                    f"Parameter '{record.name}' has a gradient that was not exchanged since the last step(). Run the last "
                    f"backward pass before step() outside of model.no_sync(), and through the DistributedDataParallel "
                    f"model; it exchanges only parameters that required gradients when it was made."
                )

    def in_flight(self) -> bool:
        """Return False: DDP's backward ends only when all gradients have come."""
        return False

    def discard(self, reason: str) -> None:
        """Warn, once, where gradients are dropped that were exchanged already."""
        if self._exchanged and not self._dropped and any(record.planned.compressed for record in self.records):
            self._dropped = True
            logger.warning(
                "Rank %d: %s after DDP had exchanged them, so what the recipe sent of earlier residuals is lost with "
                "them. Run backward passes whose gradients are not used within model.no_sync().",
                self.session.rank, reason,
            )  # fmt: skip
        self._exchanged.clear()
        # They belong to gradients that nobody will use.
        self._failures.clear()
        for record in self.records:
            record.passes = 0

    def set_passes(self, passes: int) -> None:
        """Raise ValueError for more than one: DDP's ``no_sync()`` says which passes are shared."""
        if passes != 1:
            raise ValueError("Under DistributedDataParallel, accumulate gradients within model.no_sync().")

    def prepare_unscaling(self) -> None:
        """Raise RuntimeError for recipes that keep residuals: these would be in units of a scale that changes."""
        sparse = [record.name for record in self.records if record.pipeline is not None]
        if sparse:
            raise RuntimeError(
                f"DDP has exchanged '{sparse[0]}' and {len(sparse) - 1} more parameters with a GradScaler's scale in them, "
                f"which error feedback cannot take. Use bfloat16 autocast, which needs no scaler, a dense recipe, or "
                f"DistributedOptimizer without DistributedDataParallel."
            )

    def close(self) -> None:
        """Take the hooks off the parameters."""
        for record in self.records:
            if record.hook is not None:
                record.hook.remove()


class BucketInFlight:
    """A bucket's operations until the last of them is done; then its future has the bucket with the shared gradients."""

    def __init__(self, buffer: torch.Tensor, finished: Callable[[], None]) -> None:
        devices: list[Any] = [] if buffer.device.type == "cpu" else [buffer.device]
        self.future: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=devices)
        self._buffer, self._finished = buffer, finished
        self._lock = threading.Lock()
        self._open = 0

    def wait_for(self, entries: list[tuple[BucketReducer, Record]], handles: list[Handle]) -> None:
        """Follow the handles; the engine's thread carries each gradient back as it comes."""
        self._open = len(handles)
        for (reducer, record), handle in zip(entries, handles, strict=True):
            handle.call_when_done(lambda r=reducer, c=record, h=handle: self._arrived(r, c, h))  # type: ignore[misc]

    def _arrived(self, reducer: BucketReducer, record: Record, handle: Handle) -> None:
        gradient = reducer.arrived(record, handle)
        if gradient is not None and gradient.layout != torch.strided:
            self._buffer = gradient
        with self._lock:
            self._open -= 1
            last = self._open == 0
        if last:
            self._finished()
            self.future.set_result(self._buffer)


def _counting(record: Record) -> Callable[[torch.Tensor], None]:
    def hook(gradient: torch.Tensor) -> None:
        record.passes += 1

    return hook
