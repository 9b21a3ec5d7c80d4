"""``DistributedOptimizer``: the user's optimizer, its gradients shared among ranks before each step."""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch

from sparse_ring import ops
from sparse_ring.functions import broadcast_object
from sparse_ring.optimizer.momentum import MomentumTakeover
from sparse_ring.optimizer.naming import RECIPE_KEY, Naming
from sparse_ring.optimizer.overlap import Overlap
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
from sparse_ring.recipe import Dense, Recipe, recipe_named
from sparse_ring.session import Session, current


class _Distributed(torch.optim.Optimizer):
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
        them take the same decisions.
        """
        if getattr(self, "found_inf", None) is not None and not self._unscaled():
            return None
        if closure is not None:
            closure = self._shared(closure)
        else:
            self._share()
        result = self._hooked_step(closure)
        self._synchronized = False
        self._reducer.step_done()
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
        self._reducer.passes = passes

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
            if name not in _OWN and name != "step":
                vars(plain)[name] = copy.deepcopy(value, memo)
        return plain

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        """Pickle as a plain optimizer of the wrapped class."""
        return _new_of, (self._plain_class,), self.__getstate__()

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
        reducer.overlap.refuse("a GradScaler wants to see them all first")
        if reducer.in_flight():
            raise RuntimeError(
                "A GradScaler was used for the first time after two steps without one, while gradients are being "
                "exchanged. Give overlap=False to DistributedOptimizer."
            )
        parameters = [record.parameter for record in reducer.records]
        finite = unscale(self, parameters, reducer.key("found_inf"), reducer.session)
        if not finite:
            reducer.discard("a GradScaler skipped the step")
        return finite

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
            loss = closure()
            # Each evaluation makes new gradients.
            self._synchronized = self._synchronized and self._skip_synchronize
            self._share()
            if isinstance(loss, torch.Tensor):
                reducer = self._reducer
                return ops.allreduce(loss.detach(), name=reducer.key("closure.loss"), session=reducer.session)
            return loss

        return evaluate


_OWN = ("_reducer", "_takeover", "_naming", "_recipe", "_synchronized", "_skip_synchronize")


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: Recipe | str | None = None,
    backward_passes_per_step: int = 1,
    op: Any = ops.Average,
    overlap: bool = True,
    session: Session | None = None,
) -> Any:
    """Share an optimizer's gradients among all ranks: turn ``optimizer`` into a distributed one and return it.

    The object stays the same: its class becomes a subclass of what it was, so state, hooks, schedulers and
    ``isinstance`` go on working. From the third step on, each gradient is handed to the background thread as soon as
    backward has made it, unless the first two showed that gradients are dropped or changed before the step.

    Args:
        optimizer: any ``torch.optim.Optimizer``. A parameter group may have its own ``"compression"`` (recipe or name) and
            ``"density"``.
        named_parameters: ``model.named_parameters()``; names appear in errors and checkpoints and must be the same on all
            ranks. None: parameters are called ``"parameter.<group>.<position>"``.
        compression: a recipe, such as ``GradSA(density=0.01)``, or its name (``"gradsa"``); None: dense.
        backward_passes_per_step: gradients of this many backward passes are summed before they are shared.
        op: ``Average`` or ``Sum`` over the ranks.
        overlap: False keeps all gradients until ``step()``: for local clipping, or loops that do not use every gradient.
        session: the session of this rank; None: the one that ``init()`` made.

    Raises:
        ValueError: duplicate names, optimizer parameters without a name, entries that are not (name, tensor),
            ``backward_passes_per_step`` < 1, another op, a density for a recipe without one, SGD's dampening where the
            recipe takes over the momentum.
        NotInitializedError: before ``init()``.
    """
    session = session or current()
    recipe = Dense() if compression is None else compression
    recipe = recipe_named(recipe) if isinstance(recipe, str) else recipe
    if op not in (ops.Average, ops.Sum):
        raise ValueError(f"op is {op}, but must be Average or Sum.")
    if isinstance(optimizer, _Distributed):
        raise ValueError("This optimizer is distributed already; wrap it once.")
    if backward_passes_per_step < 1:
        raise ValueError(f"backward_passes_per_step is {backward_passes_per_step}, but must be at least 1.")
    naming = Naming(named_parameters)
    reducer = GradientReducer(op == ops.Average, backward_passes_per_step, Overlap(overlap), session)
    takeover = MomentumTakeover(optimizer)
    reducer.before_submit, reducer.found_rows = takeover.prepare, takeover.release
    plain = type(optimizer)
    vars(optimizer).update(
        _reducer=reducer,
        _takeover=takeover,
        _naming=naming,
        _recipe=recipe,
        _synchronized=False,
        _skip_synchronize=False,
    )
    members = {"__module__": plain.__module__, "_plain_class": plain, "_hooked_step": _hooked_step(plain)}
    optimizer.__class__ = type(plain.__name__, (_Distributed, plain), members)
    try:
        optimizer._take_in(range(len(optimizer.param_groups)))  # type: ignore[attr-defined]
    except ValueError:
        _unwrap(optimizer)
        raise
    _rebind_step(optimizer)
    return optimizer


def _hooked_step(plain: type[torch.optim.Optimizer]) -> Any:
    """Return the plain class's step, without the momentum that was taken over, inside its step hooks.

    torch runs the hooks in a wrapper around each class's step. Around them the parameter groups must be the user's own, so
    the wrapper is taken off and put on again outside.
    """
    hooked = getattr(plain.step, "hooked", False)
    step: Any = getattr(plain.step, "__wrapped__", plain.step) if hooked else plain.step

    @functools.wraps(step)
    def without_momentum(self: Any, closure: Callable[[], Any] | None = None) -> Any:
        with self._takeover.without_momentum():
            return step(self, closure)

    return torch.optim.Optimizer.profile_hook_step(without_momentum) if hooked else without_momentum


def _unwrap(optimizer: Any) -> None:
    """Give a refused optimizer back as it was."""
    optimizer._reducer.close()
    optimizer.__class__ = optimizer._plain_class
    for name in _OWN:
        del vars(optimizer)[name]


def _rebind_step(optimizer: torch.optim.Optimizer) -> None:
    """Let an LR scheduler that was made before still see the steps: it had put its own ``step`` on the instance."""
    wrapped = vars(optimizer).pop("step", None)
    if wrapped is None:
        return

    @functools.wraps(wrapped)
    def step(*args: Any, **kwargs: Any) -> Any:
        optimizer._opt_called = True  # type: ignore[attr-defined]
        return type(optimizer).step(optimizer, *args, **kwargs)

    optimizer.step = step  # type: ignore[method-assign]


def _new_of(plain_class: type[torch.optim.Optimizer]) -> torch.optim.Optimizer:
    return plain_class.__new__(plain_class)
