"""One momentum only: where a recipe accumulates velocity before the exchange, the optimizer applies none after it.

Taken over are the sparse parameters of ``torch.optim.SGD``; their momentum coefficient is read from the user's
``param_groups`` at each step. SGD's weight decay (its L2 term) is never sent: it runs through a momentum buffer of its own, which
is identical on all ranks because the parameters are. Both parts add up to SGD's own recursion, which is linear.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from sparse_ring.optimizer.record import Record


class MomentumTakeover:
    """Splits SGD's update between the exchange and the optimizer, for the records whose recipe keeps velocity."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        # A subclass with a step of its own may do anything with its momentum.
        self._plain_step_is_sgds = type(optimizer).step is torch.optim.SGD.step
        self._records: dict[int, Record] = {}
        self._groups: dict[int, dict[str, Any]] = {}
        # The optimizer's own list, while a step runs on another one.
        self._users_groups: list[dict[str, Any]] | None = None
        self.decay_buffers: dict[str, torch.Tensor] = {}
        self.taken: set[int] = set()
        # Names of the velocities that come from a plain momentum buffer and that no step has used yet.
        self.fresh: set[str] = set()

    def add(self, records: Sequence[Record]) -> None:
        """Take in parameters that are in the optimizer's groups. Raises ValueError as ``read_groups``."""
        self._records.update((id(record.parameter), record) for record in records)
        if self._plain_step_is_sgds:
            self.taken.update(id(record.parameter) for record in records if record.keeps_velocity)
        self.read_groups()
        for record in records:
            self.start_from_momentum(record)

    def read_groups(self) -> None:
        """Note which group each parameter is in; called whenever the groups may be new objects.

        Raises ValueError where a taken-over parameter's group has dampening, or Nesterov's momentum that its recipe can't have.
        """
        self._groups = {id(p): group for group in self._optimizer.param_groups for p in group["params"]}
        for key in self.taken:
            if self._groups[key].get("dampening", 0):
                raise ValueError(
                    f"Parameter '{self._records[key].name}': this recipe accumulates momentum before the exchange, which "
                    f"SGD's dampening={self._groups[key]['dampening']} does not allow. Set dampening=0, or use TopK."
                )
            if self._groups[key].get("nesterov", False) and not self._records[key].recipe.takes_nesterov:
                raise ValueError(
                    f"Parameter '{self._records[key].name}': this recipe keeps no velocity as nesterov=True needs it. "
                    f"Set nesterov=False (or, for GradSA, momentum='local')."
                )

    def prepare(self, record: Record) -> None:
        """Set the learning rate, and the momentum that the record's velocity uses this step."""
        key = id(record.parameter)
        group = self._groups[key]
        # Under maximize weights move along the gradient.
        record.learning_rate = float(group.get("lr", 0.0)) * (-1.0 if group.get("maximize", False) else 1.0)
        if key in self.taken:
            record.momentum, record.nesterov = float(group["momentum"]), bool(group["nesterov"])

    def release(self, record: Record) -> None:
        """Leave the momentum of a parameter with sparse gradients to the optimizer: rows travel whole, without velocity."""
        self.taken.discard(id(record.parameter))

    def forget_momentum(self) -> None:
        """Drop momentum buffers that torch has loaded for taken-over parameters: their velocities come from elsewhere."""
        for key in self.taken:
            self._optimizer.state.get(self._records[key].parameter, {}).pop("momentum_buffer", None)

    def start_from_momentum(self, record: Record) -> None:
        """Let a taken-over parameter start from the optimizer's momentum buffer, where there is one.

        It becomes the velocity; where the recipe keeps none, what momentum makes of it in the next step waits in the residual.
        """
        if id(record.parameter) not in self.taken:
            return
        buffer = self._optimizer.state.get(record.parameter, {}).pop("momentum_buffer", None)
        if buffer is not None:
            pipeline = record.pipeline
            assert pipeline is not None
            velocity = buffer.detach().to("cpu", torch.float32).reshape(-1).numpy()
            pipeline.load_state_dict({**pipeline.state_dict(), "velocity": velocity})
            self.decay_buffers.pop(record.name, None)
            state = pipeline.state_dict()
            self.fresh.add(record.name)
            if "velocity" not in state:
                momentum = self._groups[id(record.parameter)]["momentum"]
                pipeline.load_state_dict({**state, "residual": state["residual"] + momentum * velocity})

    @contextmanager
    def without_momentum(self) -> Iterator[None]:
        """Within: ``param_groups`` in which the taken-over parameters have neither momentum nor weight decay."""
        groups = self._optimizer.param_groups
        if not self.taken:
            yield
            return
        self._users_groups, self._optimizer.param_groups = groups, self._without(groups)
        try:
            yield
        finally:
            self._users_groups, self._optimizer.param_groups = None, groups

    @contextmanager
    def users_groups(self) -> Iterator[None]:
        """Within a closure that ``without_momentum`` calls: ``param_groups`` are the user's again.

        What the closure changes there counts for this step already, and so does a momentum that it gives back (``release``).
        """
        groups = self._users_groups
        if groups is None:
            yield
            return
        self._optimizer.param_groups = groups
        try:
            yield
        finally:
            self._optimizer.param_groups = self._without(groups)

    def add_weight_decay(self) -> None:
        """Add the L2 term, after its own momentum, to the shared gradients of the taken-over parameters."""
        self.fresh.clear()
        for key in self.taken:
            group = self._groups[key]
            # Where weight decay was turned off, its momentum still rings down.
            if group["weight_decay"] != 0 or self._records[key].name in self.decay_buffers:
                self._add_weight_decay(self._records[key], group)

    @torch.no_grad()
    def _add_weight_decay(self, record: Record, group: dict[str, Any]) -> None:
        parameter, momentum = record.parameter, group["momentum"]
        if parameter.grad is None:
            return
        term = parameter * group["weight_decay"]
        if momentum:
            buffer = self.decay_buffers.get(record.name)
            if buffer is None:
                buffer = self.decay_buffers[record.name] = torch.zeros_like(parameter)
            buffer.mul_(momentum).add_(term)
            term = term.add_(buffer, alpha=momentum) if group["nesterov"] else buffer
        # SGD negates the gradient under maximize, but not the L2 term.
        parameter.grad.add_(term, alpha=-1.0 if group["maximize"] else 1.0)

    def _without(self, groups: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        return [part for group in groups for part in self._split(group)]

    def _split(self, group: dict[str, Any]) -> Iterator[dict[str, Any]]:
        taken = [p for p in group["params"] if id(p) in self.taken]
        others = [p for p in group["params"] if id(p) not in self.taken]
        if taken:
            yield {**group, "params": taken, "momentum": 0.0, "nesterov": False, "weight_decay": 0.0}
        if others:
            yield {**group, "params": others}
