"""``DistributedOptimizer``: the user's optimizer, its gradients shared among ranks before each step."""

from __future__ import annotations

import copy
import inspect
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch

from sparse_ring import ops
from sparse_ring.functions import allgather_object, broadcast_object, parameter_hash
from sparse_ring.observe.timeline import Track, now
from sparse_ring.optimizer.momentum import MomentumTakeover
from sparse_ring.optimizer.naming import RECIPE_KEY, Naming
from sparse_ring.optimizer.reducer import GradientReducer
from sparse_ring.optimizer.scaling import unscale
from sparse_ring.optimizer.state import (
    KEY,
    common_state,
    exchange_state,
    load_common_state,
    load_exchange_state,
    start_from_momentum,
)
from sparse_ring.recipe import Recipe

logger = logging.getLogger(__name__)


class Distributed(torch.optim.Optimizer):
    """What ``DistributedOptimizer`` puts in front of the optimizer's own class."""

    _plain_class: ClassVar[type[torch.optim.Optimizer]]
    _hooked_step: Callable[[Callable[[], Any] | None], Any]
    # torch's GradScaler then leaves scale and flag to step(), and does not decide alone whether to call it.
    _step_supports_amp_scaling = True
    _reducer: GradientReducer
    _takeover: MomentumTakeover
    _naming: Naming
    _recipe: Recipe
    _synchronized: bool
    _skip_synchronize: bool

    def synchronize(self) -> None:
        """Wait until all gradients are shared; afterwards ``.grad`` is the same on all ranks.

        Call it to look at or clip the shared gradients, then ``step()`` within ``skip_synchronize()``.
        """
        self._reducer.synchronize()
        self._synchronized = True

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Within: ``step()`` takes the gradients as they are, because ``synchronize()`` was called."""
        self._skip_synchronize = True
        try:
            yield
        finally:
            self._skip_synchronize = False

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Share the gradients, then take the optimizer's own step. Returns what that returns.

        With a closure, gradients are shared after each evaluation and its loss is averaged over the ranks, so that all of
        them take the same decisions. Under DDP's hook, torch's optimizers that evaluate it once (all but LBFGS), and so
        decide nothing by it, return this rank's own loss.
        """
        if getattr(self, "found_inf", None) is not None and not self._unscaled():
            return None
        if self._reducer.step == 0:
            self._compare_replicas()
        if closure is not None:
            closure = self._shared(closure)
        else:
            self._share()
        timeline = self._reducer.session.timeline
        began = timeline.resumed = now()
        result = self._hooked_step(closure)
        self._synchronized = False
        timeline.span(Track.TRAINING, "optimizer step", began)
        self._reducer.step_done()
        timeline.resumed = now()
        self._takeover.read_groups()
        return result

    # torch would wrap it in the step hooks, which run around the plain step only: they see shared gradients.
    step.hooked = True  # type: ignore[attr-defined]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As torch's; refused while gradients are being shared."""
        if self._reducer.in_flight():
            raise RuntimeError(
                "zero_grad() was called after backward() and before step() or synchronize(): the gradients are being "
                "exchanged now. Call it before backward() or after step(), or give overlap=False to "
                "DistributedOptimizer, which shares gradients in step() only."
            )
        self._reducer.discard("zero_grad() dropped gradients that no step had used")
        super().zero_grad(set_to_none)

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Let ``passes`` backward passes accumulate into one step, from the next step on."""
        if passes < 1:
            raise ValueError(f"backward_passes_per_step is {passes}, but must be at least 1.")
        self._reducer.set_passes(passes)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As torch's; on all ranks alike, between steps. The group may have its own ``"compression"`` and ``"density"``."""
        if hasattr(self, "_reducer"):
            self._refuse_in_flight("add_param_group()")
        super().add_param_group(param_group)
        if not hasattr(self, "_reducer"):
            return
        try:
            self._take_in([len(self.param_groups) - 1])
        except ValueError:
            self.param_groups.pop()
            raise

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's ``state_dict()`` with this rank's residuals, velocities and warm-up position under ``"sparse_ring"``."""
        self._refuse_in_flight("state_dict()")
        state = dict(super().state_dict())
        state[KEY] = exchange_state(self._reducer, self._takeover)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a ``state_dict()`` of this class, or a plain one of the wrapped optimizer.

        See :func:`sparse_ring.optimizer.state.load_exchange_state` for the state of another rank; a plain momentum buffer
        becomes every rank's velocity where the recipe keeps one.
        """
        self._refuse_in_flight("load_state_dict()")
        plain = {name: value for name, value in state_dict.items() if name != KEY}
        super().load_state_dict(plain)
        self._takeover.read_groups()
        if KEY in state_dict:
            load_exchange_state(state_dict[KEY], self._reducer, self._takeover)
        else:
            start_from_momentum(self._takeover, self._reducer)

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.optim.Optimizer:
        """Return a plain optimizer of the wrapped class: a copy has no part in the exchange."""
        plain = self._plain_class.__new__(self._plain_class)
        memo[id(self)] = plain
        for name, value in vars(self).items():
            if name not in OWN and name != "step":
                vars(plain)[name] = copy.deepcopy(value, memo)
        return plain

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        """Pickle as a plain optimizer of the wrapped class."""
        return _new_of, (self._plain_class,), self.__getstate__()

    def _compare_replicas(self) -> None:
        """Warn where ranks do not start equal: they would never become so."""
        reducer = self._reducer
        if reducer.session.size == 1:
            return
        own = parameter_hash(record.parameter for record in reducer.records)
        hashes = allgather_object(own, reducer.key("replicas"), reducer.session)
        if len(set(hashes)) > 1 and reducer.session.rank == 0:
            logger.warning(
                "Parameters differ between ranks before the first step (hashes by rank: %s). Give all ranks the same: "
                "broadcast_parameters(model.state_dict(), root_rank=0).",
                ", ".join(hashes),
            )

    def _refuse_in_flight(self, what: str) -> None:
        if self._reducer.in_flight():
            raise RuntimeError(f"{what} was called while gradients are being exchanged: call it after step().")

    def _take_in(self, numbers: Iterable[int]) -> None:
        """Name, plan and hook the parameters of some groups."""
        groups = [(number, self.param_groups[number]) for number in numbers]
        named = self._naming.named(groups, self._recipe)
        known = len(self._reducer.records)
        self._reducer.add(named)
        self._takeover.add(self._reducer.records[known:])
        for _, group in groups:
            # A recipe is no plain value, as checkpoints want them; the plan has it now.
            group.pop(RECIPE_KEY, None)

    def _unscaled(self) -> bool:
        """Undo a GradScaler's scale; returns False where this step is to be skipped on all ranks."""
        reducer = self._reducer
        reducer.prepare_unscaling()
        parameters = [record.parameter for record in reducer.records]
        return unscale(self, parameters, reducer.key("found_inf"), reducer.session)

    def share_common_state(self, root_rank: int) -> None:
        """Give every rank the root's warm-up position and weight decay's momentum; collective.

        Velocities that the root has just started from a plain momentum buffer become every rank's: one of them alone would
        count for 1/P. Called by ``broadcast_optimizer_state``.
        """
        reducer, takeover = self._reducer, self._takeover
        self._refuse_in_flight("broadcast_optimizer_state()")
        common = broadcast_object(common_state(reducer, takeover), root_rank, session=reducer.session)
        if reducer.session.rank != root_rank:
            load_common_state(common, reducer, takeover)
        takeover.read_groups()

    def _share(self) -> None:
        if self._skip_synchronize:
            if not self._synchronized or self._reducer.in_flight():
                raise RuntimeError(
                    "step() within skip_synchronize(), but synchronize() was not called before, or backward() came after it."
                )
        else:
            if self._synchronized:
                warnings.warn(
                    "step() without skip_synchronize() after synchronize() shares the gradients a second time; "
                    "write: with optimizer.skip_synchronize(): optimizer.step()",
                    stacklevel=3,
                )
            self.synchronize()
        self._takeover.add_weight_decay()

    def _shared(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def evaluate() -> Any:
            with self._takeover.users_groups():
                loss = closure()
                # Each evaluation makes new gradients.
                self._synchronized = self._synchronized and self._skip_synchronize
                self._share()
            reducer = self._reducer
            if isinstance(loss, torch.Tensor) and (
                reducer.averages_every_loss or not evaluates_once(self._plain_class)
            ):
                return ops.allreduce(loss.detach(), name=reducer.key("closure.loss"), session=reducer.session)
            return loss

        return evaluate


def evaluates_once(plain_class: type[torch.optim.Optimizer]) -> bool:
    """Return whether ``step(closure)`` is known to evaluate the closure once: torch's own, but for LBFGS."""
    step = inspect.unwrap(plain_class.step)
    return step.__module__.startswith("torch.optim.") and not issubclass(plain_class, torch.optim.LBFGS)


OWN = ("_reducer", "_takeover", "_naming", "_recipe", "_synchronized", "_skip_synchronize")


def _new_of(plain_class: type[torch.optim.Optimizer]) -> torch.optim.Optimizer:
    return plain_class.__new__(plain_class)
