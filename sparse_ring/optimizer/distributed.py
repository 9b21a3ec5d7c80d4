"""``DistributedOptimizer``: the user's optimizer, its gradients shared among ranks before each step."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from sparse_ring import ops
from sparse_ring.observe.timeline import Track, now
from sparse_ring.optimizer.momentum import MomentumTakeover
from sparse_ring.optimizer.reducer import GradientReducer
from sparse_ring.optimizer.state import KEY, exchange_state, load_exchange_state, start_from_momentum
from sparse_ring.recipe import Dense, Recipe, recipe_named
from sparse_ring.session import Session, current


class _Distributed(torch.optim.Optimizer):
    """What ``DistributedOptimizer`` puts in front of the optimizer's own class."""

    _reducer: GradientReducer
    _takeover: MomentumTakeover
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
        if closure is not None:
            closure = self._shared(closure)
        else:
            self._share()
        timeline = self._reducer.session.timeline
        began = timeline.resumed = now()
        with self._takeover.without_momentum():
            result = super().step(closure)
        self._synchronized = False
        timeline.span(Track.TRAINING, "optimizer step", began)
        self._reducer.step_done()
        timeline.resumed = now()
        self._takeover.read_groups()
        return result

    # torch wraps the step of each class in its step hooks; the wrapped class's step, called above, runs them.
    step.hooked = True  # type: ignore[attr-defined]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As torch's; refused while gradients are being shared."""
        if self._reducer.in_flight():
            raise RuntimeError(
                "zero_grad() was called after backward() and before step() or synchronize(): the gradients are being "
                "exchanged now. Call it before backward() or after step()."
            )
        super().zero_grad(set_to_none)

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Let ``passes`` backward passes accumulate into one step, from the next step on."""
        if passes < 1:
            raise ValueError(f"backward_passes_per_step is {passes}, but must be at least 1.")
        self._reducer.passes = passes

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refused once ranks have agreed on the parameters."""
        if hasattr(self, "_reducer"):
            raise NotImplementedError(
                "add_param_group() after DistributedOptimizer() is not supported yet: add all groups to the optimizer "
                "before it is wrapped."
            )
        super().add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's ``state_dict()`` with this rank's residuals, velocities and warm-up position under ``"sparse_ring"``."""
        state = dict(super().state_dict())
        state[KEY] = exchange_state(self._reducer, self._takeover)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a ``state_dict()`` of this class, or a plain one of the wrapped optimizer.

        See :func:`sparse_ring.optimizer.state.load_exchange_state` for the state of another rank; a plain momentum buffer
        becomes every rank's velocity where the recipe keeps one.
        """
        plain = {name: value for name, value in state_dict.items() if name != KEY}
        super().load_state_dict(plain)
        self._takeover.read_groups()
        if KEY in state_dict:
            load_exchange_state(state_dict[KEY], self._reducer, self._takeover)
        else:
            start_from_momentum(self, self._takeover, self._reducer)

    def _share(self) -> None:
        if self._skip_synchronize:
            if not self._synchronized:
                raise RuntimeError("step() within skip_synchronize(), but synchronize() was not called before.")
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
                return ops.allreduce(loss.detach(), name="closure.loss", session=self._reducer.session)
            return loss

        return evaluate


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: Recipe | str | None = None,
    backward_passes_per_step: int = 1,
    op: Any = ops.Average,
    session: Session | None = None,
) -> Any:
    """Share an optimizer's gradients among all ranks: turn ``optimizer`` into a distributed one and return it.

    The object stays the same: its class becomes a subclass of what it was, so state, hooks, schedulers and
    ``isinstance`` go on working. Each gradient is handed to the background thread as soon as backward has made it.

    Args:
        optimizer: any ``torch.optim.Optimizer``.
        named_parameters: ``model.named_parameters()``; names appear in errors and checkpoints and must be the same on all
            ranks. None: parameters are called ``"parameter.<group>.<position>"``.
        compression: a recipe, such as ``GradSA(density=0.01)``, or its name (``"gradsa"``); None: dense.
        backward_passes_per_step: gradients of this many backward passes are summed before they are shared.
        op: ``Average`` or ``Sum`` over the ranks.
        session: the session of this rank; None: the one that ``init()`` made.

    Raises:
        ValueError: duplicate names, optimizer parameters without a name, entries that are not (name, tensor),
            ``backward_passes_per_step`` < 1, another op, SGD's dampening where the recipe takes over the momentum.
        NotInitializedError: before ``init()``.
    """
    session = session or current()
    recipe = Dense() if compression is None else compression
    recipe = recipe_named(recipe) if isinstance(recipe, str) else recipe
    if op not in (ops.Average, ops.Sum):
        raise ValueError(f"op is {op}, but must be Average or Sum.")
    if isinstance(optimizer, _Distributed):
        raise ValueError("This optimizer is distributed already; wrap it once.")
    named = _named(optimizer, named_parameters)
    if backward_passes_per_step < 1:
        raise ValueError(f"backward_passes_per_step is {backward_passes_per_step}, but must be at least 1.")
    reducer = GradientReducer(named, recipe, op == ops.Average, backward_passes_per_step, session)
    try:
        takeover = MomentumTakeover(optimizer, reducer.records)
    except ValueError:
        reducer.close()
        raise
    reducer.before_submit = takeover.prepare
    plain = type(optimizer)
    optimizer.__class__ = type(plain.__name__, (_Distributed, plain), {"__module__": plain.__module__})
    vars(optimizer).update(_reducer=reducer, _takeover=takeover, _synchronized=False, _skip_synchronize=False)
    _rebind_step(optimizer)
    return optimizer


def _named(
    optimizer: torch.optim.Optimizer, named_parameters: Iterable[tuple[str, torch.Tensor]] | None
) -> list[tuple[str, torch.Tensor]]:
    """Return the optimizer's parameters with their names, in the order of ``named_parameters``."""
    owned = {
        id(p): (f"parameter.{i}.{j}", p)
        for i, group in enumerate(optimizer.param_groups)
        for j, p in enumerate(group["params"])
    }
    if named_parameters is None:
        return list(owned.values())
    named = list(named_parameters)
    if any(not isinstance(item, tuple) or len(item) != 2 or not isinstance(item[0], str) for item in named):
        raise ValueError("named_parameters must be (name, tensor) tuples, as model.named_parameters() yields.")
    names = [name for name, _ in named]
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise ValueError(f"named_parameters has duplicate names: {', '.join(duplicates)}.")
    known = {id(p) for _, p in named}
    missing = [name for key, (name, _) in owned.items() if key not in known]
    if missing:
        raise ValueError(
            f"{len(missing)} optimizer parameters are not in named_parameters (by group and position: "
            f"{', '.join(missing[:5])}). Give model.named_parameters() of every model that the optimizer updates."
        )
    # A tied parameter has several names; the first counts.
    first: dict[int, tuple[str, torch.Tensor]] = {}
    for name, p in named:
        if id(p) in owned:
            first.setdefault(id(p), (name, p))
    return list(first.values())


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
