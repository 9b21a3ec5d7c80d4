"""For those who train with ``DistributedDataParallel``: the same gradients' way as a communication hook.

    model = DistributedDataParallel(model)
    sparse_ring.ddp.register(model, optimizer, compression="gradsa")

DDP goes on deciding when a gradient leaves and when backward waits; what travels, and all that is kept of it, is
``DistributedOptimizer``'s, and so are the results, bit for bit. One thing differs: ``step(closure)`` returns this rank's own
loss, not the ranks' mean, where the optimizer is one of torch's other than LBFGS.
"""

# Without "from __future__ import annotations": torch compares the hook's annotations with the classes themselves.
import threading
from collections.abc import Iterable
from typing import Any

import torch
from torch.distributed import GradBucket  # type: ignore[attr-defined]
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from sparse_ring import ops
from sparse_ring import session as sessions
from sparse_ring.optimizer.bucket_reducer import BucketInFlight, BucketReducer
from sparse_ring.optimizer.naming import Naming
from sparse_ring.optimizer.record import Record
from sparse_ring.optimizer.wrapping import check_op, innermost, recipe_of, wrap
from sparse_ring.recipe import Recipe
from sparse_ring.session import Session

__all__ = ["GradientHook", "register"]


def register(
    model: DistributedDataParallel,
    *optimizers: torch.optim.Optimizer,
    compression: Recipe | str | None = None,
    op: Any = ops.Average,
    session: Session | None = None,
) -> "GradientHook":
    """Let a DDP model exchange its gradients with a recipe; the optimizers become distributed ones, as objects the same.

    Call it once, after the model was wrapped and before the first backward pass, on all ranks. Joins the job with
    ``sparse_ring.init()`` where that has not been done.

    Args:
        model: a ``DistributedDataParallel`` over all ranks of the session.
        optimizers: those that update the model's parameters, plain or as ``accelerate`` wraps them. ``state_dict()``,
            ``save_checkpoint()`` and parameter groups with ``"compression"`` or ``"density"`` are as with
            ``DistributedOptimizer``.
        compression: a recipe or its name; None: dense.
        op: ``Average``, as DDP does without a hook, or ``Sum``.
        session: of this rank; None: the process's own.

    Raises:
        ValueError: a model that is no DDP model or has other ranks than the session, no optimizer, parameters that no
            optimizer has, and what ``DistributedOptimizer`` refuses.
    """
    if not isinstance(model, DistributedDataParallel):
        raise ValueError(f"register() takes a DistributedDataParallel model, not a {type(model).__name__}.")
    hook = GradientHook(compression, op=op, session=session)
    group: Any = model.process_group
    if (group.rank(), group.size()) != (hook.session.rank, hook.session.size):
        raise ValueError(
            f"The model is rank {group.rank()} of {group.size()} in its process group, but this is rank "
            f"{hook.session.rank} of {hook.session.size} in sparse_ring's session; both must have the same ranks."
        )
    unused = bool(model.find_unused_parameters or model.static_graph)
    hook.attach(model.module.named_parameters(), *optimizers, unused=unused)
    model.register_comm_hook(None, hook.reduce)
    return hook


class GradientHook:
    """The hook and the optimizers that it works for: for frameworks that register hooks themselves (Lightning).

        hook = sparse_ring.ddp.GradientHook("gradsa")
        DDPStrategy(ddp_comm_hook=hook.reduce)      # and, where optimizers are made:
        hook.attach(self.named_parameters(), optimizer)

    compression, op, session
        As for ``register``.
    """

    def __init__(
        self, compression: Recipe | str | None = None, *, op: Any = ops.Average, session: Session | None = None
    ) -> None:
        check_op(op)
        self._recipe, self._average = recipe_of(compression), op == ops.Average
        self._session = session
        self._reducers: list[BucketReducer] = []
        self._records: dict[int, tuple[BucketReducer, Record]] = {}
        self._lock = threading.Lock()
        self._open = 0

    @property
    def session(self) -> Session:
        """The rank's session; joins the job where that has not been done."""
        if self._session is None:
            if not sessions.is_initialized():
                sessions.init()
            self._session = sessions.current()
        return self._session

    def attach(
        self,
        named_parameters: Iterable[tuple[str, torch.Tensor]],
        *optimizers: torch.optim.Optimizer,
        unused: bool = False,
    ) -> None:
        """Make the optimizers distributed ones whose gradients this hook shares.

        Args:
            named_parameters: of the model that DDP wraps; all that require gradients must be in an optimizer.
            optimizers: plain ones, or wrappers that have the plain one as ``.optimizer``.
            unused: backward may leave parameters out (DDP's ``find_unused_parameters`` or ``static_graph``).

        Raises ValueError as ``register``; the optimizers then stay as they were where none was taken before.
        """
        named = list(named_parameters)
        plain = [innermost(optimizer) for optimizer in optimizers]
        updated = {id(p) for optimizer in plain for group in optimizer.param_groups for p in group["params"]}
        left = [name for name, tensor in named if tensor.requires_grad and id(tensor) not in updated]
        if left:
            raise ValueError(
                f"{len(left)} parameters are in none of the {len(plain)} optimizers ({', '.join(left[:5])}). Give all "
                f"optimizers that update the model, and freeze (requires_grad_(False)) what none updates."
            )
        for optimizer in plain:
            reducer = BucketReducer(self._average, self.session)
            reducer.looks_for_unused = unused
            wrap(optimizer, Naming(named), self._recipe, reducer)
            self._reducers.append(reducer)

    def reduce(self, state: object, bucket: GradBucket) -> Future[torch.Tensor]:
        """Share one bucket: what ``register_comm_hook`` takes. ``state`` is not used.

        Returns a future of the bucket's buffer, in which the shared gradients have replaced this rank's. Errors of the
        exchange are raised by the optimizer's ``step()``, where they have their own types.
        """
        buffer = bucket.buffer()
        gradients = bucket.gradients() if buffer.layout == torch.strided else [buffer]
        entries = [self._entry(parameter) for parameter in bucket.parameters()]
        operations = [
            reducer.operation_of(record, gradient)
            for (reducer, record), gradient in zip(entries, gradients, strict=True)
        ]
        handles = self.session.submit_all(operations)
        in_flight = BucketInFlight(buffer, self._bucket_done)
        last = bucket.is_last()
        with self._lock:
            self._open += 1
            if last:
                # All gradients have left: from here on backward waits for the exchange.
                self.session.metrics.start_waiting()
        in_flight.wait_for(entries, handles)
        if last:
            for handle in handles:
                handle.expect()
        return in_flight.future

    def _entry(self, parameter: torch.Tensor) -> tuple[BucketReducer, Record]:
        if id(parameter) not in self._records:
            # Parameter groups may have been added since.
            for reducer in self._reducers:
                self._records.update((id(record.parameter), (reducer, record)) for record in reducer.records)
        entry = self._records.get(id(parameter))
        if entry is None:
            raise RuntimeError(
                "DDP has a gradient of a parameter that no optimizer was attached for: call "
                "GradientHook.attach(model.named_parameters(), optimizer) before the first backward pass."
            )
        return entry

    def _bucket_done(self) -> None:
        metrics = self.session.metrics
        with self._lock:
            self._open -= 1
            if self._open == 0 and metrics.waiting_since:
                metrics.stop_waiting()
