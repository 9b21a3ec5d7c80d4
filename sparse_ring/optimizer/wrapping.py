"""``DistributedOptimizer``: turns the user's optimizer, the same object, into a distributed one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch

from sparse_ring import ops
from sparse_ring.optimizer.distributed import OWN, Distributed
from sparse_ring.optimizer.hook_reducer import HookReducer
from sparse_ring.optimizer.momentum import MomentumTakeover
from sparse_ring.optimizer.naming import Naming
from sparse_ring.optimizer.overlap import Overlap
from sparse_ring.optimizer.reducer import GradientReducer
from sparse_ring.recipe import RECIPES, Dense, Recipe, recipe_named
from sparse_ring.session import Session, current


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
    recipe = recipe_of(compression)
    check_op(op)
    if backward_passes_per_step < 1:
        raise ValueError(f"backward_passes_per_step is {backward_passes_per_step}, but must be at least 1.")
    reducer = HookReducer(op == ops.Average, backward_passes_per_step, Overlap(overlap), session)
    return wrap(optimizer, Naming(named_parameters), recipe, reducer)


def recipe_of(compression: Recipe | str | None) -> Recipe:
    """Return the recipe that a user's ``compression=`` means. Raises ValueError for what is none."""
    recipe: Any = Dense() if compression is None else compression
    recipe = recipe_named(recipe) if isinstance(recipe, str) else recipe
    if not isinstance(recipe, Recipe):
        what = f"the class {recipe.__name__}" if isinstance(recipe, type) else repr(recipe)
        raise ValueError(
            f"compression is {what}, but must be a recipe, such as GradSA(density=0.01), or one of {', '.join(RECIPES)}."
        )
    return recipe


def innermost(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Return the optimizer itself where a framework (accelerate, Lightning) has put its own around it."""
    inner = getattr(optimizer, "optimizer", None)
    return innermost(inner) if isinstance(inner, torch.optim.Optimizer) else optimizer


def distributed(optimizer: Any) -> Distributed:
    """Return a distributed optimizer, without a framework's wrapper. Raises ValueError for anything else."""
    plain = innermost(optimizer)
    if not isinstance(plain, Distributed):
        raise ValueError(
            f"A {type(plain).__name__} is no distributed optimizer; give what DistributedOptimizer() returned."
        )
    return plain


def check_op(op: Any) -> None:
    """Raise ValueError for what gradients are not combined by."""
    if op not in (ops.Average, ops.Sum):
        raise ValueError(f"op is {op}, but must be Average or Sum.")


def wrap(optimizer: torch.optim.Optimizer, naming: Naming, recipe: Recipe, reducer: GradientReducer) -> Any:
    """Turn an optimizer into one whose gradients a reducer shares, and return it; refused, it stays as it was."""
    if isinstance(optimizer, Distributed):
        raise ValueError("This optimizer is distributed already; wrap it once.")
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
    optimizer.__class__ = type(plain.__name__, (Distributed, plain), members)
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
    for name in OWN:
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
