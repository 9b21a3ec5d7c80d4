"""What training scripts do with whole models: same start on all ranks, objects, a hash to compare."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from sparse_ring.errors import MismatchError
from sparse_ring.ops import allgather_async, broadcast_, broadcast_async_
from sparse_ring.session import Session, current
from sparse_ring.views import Work, dtype_name

Named = tuple[str, torch.Tensor]


def broadcast_parameters(
    params: Mapping[str, Any] | Iterable[torch.Tensor] | Iterable[Named], root_rank: int, session: Session | None = None
) -> None:
    """Overwrite parameters with the root's, in place, on all ranks.

    params
        A ``state_dict()``, ``named_parameters()``, or tensors in the same order on all ranks; None entries are passed
        over.

    Raises ValueError for an entry that is no tensor and for an invalid root; MismatchError on all ranks where shapes or
    dtypes differ.
    """
    session = session or current()
    named = _named(params)
    handles = [broadcast_async_(tensor, root_rank, f"broadcast_parameters.{name}", session) for name, tensor in named]
    _finish_all(handles, session)


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int,
    model: torch.nn.Module | None = None,
    session: Session | None = None,
) -> None:
    """Give every rank the root's optimizer state and options; works where only the root has state.

    Copies ``optimizer.state`` and ``param_groups`` (learning rates, …) as they are: nothing is cast, ``step()`` is never
    run, and weights stay. Of a distributed optimizer also what must be equal on all ranks (see its ``share_common_state``); what
    ranks keep for themselves (residuals, local velocities) is no part of these.
    ``model`` is not needed; Horovod's callers give it. Other than tensors, values travel as pickles of the root.

    Raises MismatchError on all ranks where the optimizers do not hold parameters of the same shapes in the same groups.
    """
    session = session or current()
    groups = optimizer.param_groups
    layout = [[tuple(parameter.shape) for parameter in group["params"]] for group in groups]
    layouts = allgather_object(layout, "broadcast_optimizer_state.layout", session)
    different = [rank for rank, other in enumerate(layouts) if other != layouts[root_rank]]
    if different:
        raise MismatchError(
            "broadcast_optimizer_state",
            f"the optimizers of ranks {different} hold other parameters (number, shapes or groups) than rank "
            f"{root_rank}'s. Build the same optimizer on all ranks.",
        )
    parameters = [parameter for group in groups for parameter in group["params"]]
    tensors: list[torch.Tensor] = []
    content = None
    if session.rank == root_rank:
        options = [{key: value for key, value in group.items() if key != "params"} for group in groups]
        state = {index: optimizer.state[p] for index, p in enumerate(parameters) if p in optimizer.state}
        content = _without_tensors({"options": options, "state": state}, tensors)
    content, described = broadcast_object(
        (content, [_Described.of(tensor) for tensor in tensors]), root_rank, "broadcast_optimizer_state", session
    )
    if session.rank != root_rank:
        tensors = [each.empty() for each in described]
    names = [f"broadcast_optimizer_state.{index}" for index in range(len(tensors))]
    _finish_all(
        [broadcast_async_(tensor, root_rank, name, session) for tensor, name in zip(tensors, names, strict=True)],
        session,
    )
    if session.rank != root_rank:
        _take_over(optimizer, parameters, _with_tensors(content, tensors))
    share_common_state = getattr(optimizer, "share_common_state", None)
    if share_common_state is not None:
        share_common_state(root_rank)


def broadcast_object(obj: Any, root_rank: int = 0, name: str | None = None, session: Session | None = None) -> Any:
    """Return the root's object on every rank (the root: its own object).

    It travels as a pickle. Unpickling runs what a pickle says: it comes from the job's own ranks, which run this program
    already, and from nowhere else.
    """
    session = session or current()
    name = name or session.unique_name("broadcast_object")
    own = session.rank == root_rank
    data = _pickled(obj) if own else torch.empty(0, dtype=torch.uint8)
    length = torch.tensor([data.numel()])
    broadcast_(length, root_rank, f"{name}.length", session)
    if not own:
        data = torch.empty(int(length), dtype=torch.uint8)
    broadcast_(data, root_rank, f"{name}.data", session)
    return obj if own else pickle.loads(data.numpy().tobytes())


def allgather_object(obj: Any, name: str | None = None, session: Session | None = None) -> list[Any]:
    """Return every rank's object, by rank; as pickles, see :func:`broadcast_object`."""
    session = session or current()
    name = name or session.unique_name("allgather_object")
    lengths = session.finish(allgather_async(torch.tensor([_pickled(obj).numel()]), f"{name}.lengths", session))
    data = session.finish(allgather_async(_pickled(obj), f"{name}.data", session))
    return [pickle.loads(part.numpy().tobytes()) for part in data.split(lengths.tolist())]


def parameter_hash(params: Iterable[torch.Tensor]) -> str:
    """Return 16 hexadecimal digits over the bits, dtypes and shapes of tensors, in order; local to this rank.

    Equal parameters on all ranks have equal hashes; ``allgather_object`` brings them together.
    """
    digest = hashlib.sha256()
    for index, tensor in enumerate(params):
        digest.update(f"{dtype_name(tensor.dtype)}{tuple(tensor.shape)}".encode())
        digest.update(Work(tensor, f"parameter {index}", in_place=True).bytes().tobytes())
    return digest.hexdigest()[:16]


def _named(params: Mapping[str, Any] | Iterable[torch.Tensor] | Iterable[Named]) -> list[Named]:
    entries = list(params.items()) if isinstance(params, Mapping) else list(params)
    named = []
    for index, entry in enumerate(entries):
        name, tensor = entry if isinstance(entry, tuple) and len(entry) == 2 else (str(index), entry)
        if tensor is None:
            continue
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(
                f"Parameter '{name}' is a {type(tensor).__name__}, not a tensor; send it with broadcast_object()."
            )
        named.append((name, tensor))
    return named


def _finish_all(handles: Sequence[int], session: Session) -> None:
    failure = None
    for handle in handles:
        try:
            session.finish(handle)
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure


def _pickled(obj: Any) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(pickle.dumps(obj), dtype=np.uint8).copy())


class _Place(int):
    """Stands for the tensor of this number in a structure without tensors."""


class _Described:
    """Dtype, shape and device type of a tensor that is to come."""

    def __init__(self, dtype: torch.dtype, shape: tuple[int, ...], device: str) -> None:
        self.dtype, self.shape, self.device = dtype, shape, device

    @classmethod
    def of(cls, tensor: torch.Tensor) -> _Described:
        return cls(tensor.dtype, tuple(tensor.shape), tensor.device.type)

    def empty(self) -> torch.Tensor:
        return torch.empty(self.shape, dtype=self.dtype, device=self.device)


def _without_tensors(value: Any, tensors: list[torch.Tensor]) -> Any:
    """Return a copy of nested dicts, lists and tuples in which each tensor is its place in ``tensors``."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return _Place(len(tensors) - 1)
    if isinstance(value, dict):
        return {key: _without_tensors(entry, tensors) for key, entry in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_without_tensors(entry, tensors) for entry in value)
    return value


def _with_tensors(value: Any, tensors: Sequence[torch.Tensor]) -> Any:
    if isinstance(value, _Place):
        return tensors[value]
    if isinstance(value, dict):
        return {key: _with_tensors(entry, tensors) for key, entry in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_with_tensors(entry, tensors) for entry in value)
    return value


def _take_over(optimizer: torch.optim.Optimizer, parameters: Sequence[torch.Tensor], content: Any) -> None:
    for group, options in zip(optimizer.param_groups, content["options"], strict=True):
        group.update(options)
    for index, parameter in enumerate(parameters):
        optimizer.state.pop(parameter, None)
        if index in content["state"]:
            optimizer.state[parameter] = content["state"][index]
