"""Collectives on torch tensors, by name.

Every rank calls the same operations; names tell which belong together, so the order may differ between ranks. Without a name,
one is made from the count of such calls, which then must come in the same order on all ranks. The same name may not be in flight
twice.

Asynchronous forms return an int handle for ``poll`` and ``synchronize``; a trailing ``_`` works in place. Tensors may have any
strides, no elements or no dimensions, and live on any device (others than the CPU's travel through a copy in host memory).
A tensor given to an operation in place must not be touched until ``synchronize``.

None of these is differentiable yet: results are detached from the graph.

Errors made on this rank alone are ValueError at the call. Where ranks disagree (dtype, shape, operation, root), MismatchError, a
SparseRingError, is raised on all ranks by ``synchronize``, and the job stays usable.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from enum import Enum
from typing import Any

import torch

from sparse_ring.engine.operation import Operation
from sparse_ring.exchange.allgather import Allgather, Gathered
from sparse_ring.exchange.allreduce import Allreduce
from sparse_ring.exchange.barrier import Barrier
from sparse_ring.exchange.broadcast import Broadcast
from sparse_ring.recipe import Recipe, RingRecipe
from sparse_ring.session import Session, current
from sparse_ring.views import Work, dtype_name, from_bytes, row_bytes


class ReduceOp(Enum):
    """How ranks' elements become one."""

    Average = "Average"
    Sum = "Sum"
    Min = "Min"
    Max = "Max"


Average, Sum, Min, Max = ReduceOp.Average, ReduceOp.Sum, ReduceOp.Min, ReduceOp.Max


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: Recipe | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    session: Session | None = None,
) -> torch.Tensor:
    """Reduce a tensor over all ranks; returns a new tensor, with the same bits on every rank.

    tensor
        float16, 32, 64, bfloat16, complex, int8 to int64, uint8; bool under Min and Max. Same shape and dtype on all ranks.
    average
        Deprecated: True is ``op=Average``, False ``op=Sum``.
    compression
        ``BF16()`` lets float32 travel as bfloat16; recipes that keep state per parameter belong to DistributedOptimizer.
    op
        None means Average. An integer Average truncates toward zero; integer Sums wrap around. A float16 Average does not
        overflow. Min and Max are not defined for complex.
    prescale_factor, postscale_factor
        Multiply before and after the reduction.

    Raises ValueError: both ``average`` and ``op``, a dtype or factor that does not fit, the name is in flight.
    """
    handle = _reduce(
        [tensor], False, False, average, name, op, (prescale_factor, postscale_factor), session, _wire(compression)
    )
    return _tensor(synchronize(handle, session))


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    session: Session | None = None,
) -> torch.Tensor:
    """``allreduce`` in place; returns the tensor."""
    handle = allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor, session)
    return _tensor(synchronize(handle, session))


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    session: Session | None = None,
) -> int:
    """Start an ``allreduce``; the tensor is copied now. Returns a handle."""
    return _reduce([tensor], False, False, average, name, op, (prescale_factor, postscale_factor), session)


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    session: Session | None = None,
) -> int:
    """Start an ``allreduce`` in place. Returns a handle."""
    return _reduce([tensor], False, True, average, name, op, (prescale_factor, postscale_factor), session)


def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: Recipe | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    session: Session | None = None,
) -> list[torch.Tensor]:
    """``allreduce`` of several tensors that are handed over together; member i is named ``"<name>.<i>"``."""
    factors = (prescale_factor, postscale_factor)
    handle = _reduce(tensors, True, False, average, name, op, factors, session, _wire(compression))
    return _tensors(synchronize(handle, session))


def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    session: Session | None = None,
) -> list[torch.Tensor]:
    """``grouped_allreduce`` in place; returns the tensors."""
    handle = grouped_allreduce_async_(tensors, average, name, op, prescale_factor, postscale_factor, session)
    return _tensors(synchronize(handle, session))


def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    session: Session | None = None,
) -> int:
    """Start a ``grouped_allreduce``; the tensors are copied now. Returns one handle for all."""
    return _reduce(tensors, True, False, average, name, op, (prescale_factor, postscale_factor), session)


def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    session: Session | None = None,
) -> int:
    """Start a ``grouped_allreduce`` in place. Returns one handle for all."""
    return _reduce(tensors, True, True, average, name, op, (prescale_factor, postscale_factor), session)


def allgather(tensor: torch.Tensor, name: str | None = None, session: Session | None = None) -> torch.Tensor:
    """Join all ranks' tensors along the first dimension, in rank order.

    Any dtype. First dimensions may differ between ranks, the others may not; a tensor without dimensions counts as one row.
    """
    return _tensor(synchronize(allgather_async(tensor, name, session), session))


def allgather_async(tensor: torch.Tensor, name: str | None = None, session: Session | None = None) -> int:
    """Start an ``allgather``; the tensor is copied now. Returns a handle."""
    session = session or current()
    name = name or session.unique_name("allgather")
    work = Work(tensor, name, in_place=False)
    like = tensor.detach() if tensor.dim() else tensor.detach().reshape(1)
    operation = Allgather(
        name,
        work.bytes(),
        dtype=dtype_name(tensor.dtype),
        shape=tuple(like.shape),
        row_bytes=row_bytes(like),
        mesh=session.exchanges.messages,
    )

    def finish(results: Sequence[Gathered]) -> torch.Tensor:
        return from_bytes(results[0].data, sum(results[0].rows), like)

    return session.start([operation], finish)


def broadcast(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, session: Session | None = None
) -> torch.Tensor:
    """Return a copy of the root's tensor. Any dtype; same shape and dtype on all ranks.

    Raises ValueError for a root that is no rank.
    """
    return _tensor(synchronize(broadcast_async(tensor, root_rank, name, session), session))


def broadcast_(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, session: Session | None = None
) -> torch.Tensor:
    """``broadcast`` in place; returns the tensor."""
    return _tensor(synchronize(broadcast_async_(tensor, root_rank, name, session), session))


def broadcast_async(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, session: Session | None = None
) -> int:
    """Start a ``broadcast``; the tensor is copied now. Returns a handle."""
    return _broadcast(tensor, False, root_rank, name, session)


def broadcast_async_(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, session: Session | None = None
) -> int:
    """Start a ``broadcast`` in place. Returns a handle."""
    return _broadcast(tensor, True, root_rank, name, session)


def barrier(session: Session | None = None) -> None:
    """Return once every rank has called it as often as this one."""
    session = session or current()
    session.submit(Barrier(session.unique_name("barrier"))).wait()


def poll(handle: int, session: Session | None = None) -> bool:
    """Return whether ``synchronize(handle)`` would return at once. Raises ValueError for an unknown or finished handle."""
    session = session or current()
    if handle not in session.pending:
        raise ValueError(f"Handle {handle!r} is unknown or was already synchronized.")
    return all(part.done() for part in session.pending[handle][0])


def synchronize(handle: int, session: Session | None = None) -> Any:
    """Wait for an operation and return its result: a tensor, or a list of them for a group.

    Returns None for a handle that is unknown or was synchronized before. Raises the operation's error; of a group the first
    member's, once all members have ended.
    """
    return (session or current()).finish(handle)


def _reduce(
    tensors: Sequence[torch.Tensor],
    grouped: bool,
    in_place: bool,
    average: bool | None,
    name: str | None,
    op: ReduceOp | None,
    factors: tuple[float, float],
    session: Session | None,
    wire: str = "native",
) -> int:
    session = session or current()
    reduce_op = _op(average, op)
    name = name or session.unique_name("grouped_allreduce" if grouped else "allreduce")
    names = [f"{name}.{i}" for i in range(len(tensors))] if grouped else [name]
    works = [Work(tensor, each, in_place=in_place) for tensor, each in zip(tensors, names, strict=True)]
    operations: list[Operation] = []
    for work in works:
        if work.tensor.is_complex() and reduce_op in (ReduceOp.Min, ReduceOp.Max):
            raise ValueError(f"Tensor '{work.name}': complex numbers have no {reduce_op.value}.")
        operation = Allreduce(
            work.name,
            work.array(),
            reduce_op.value,
            exchanges=session.exchanges,
            wire=wire if work.tensor.dtype == torch.float32 else "native",
            prescale=factors[0],
            postscale=factors[1],
            dtype=dtype_name(work.tensor.dtype),
        )
        operations.append(operation)

    def finish(results: Sequence[Any]) -> torch.Tensor | list[torch.Tensor]:
        return [work.result() for work in works] if grouped else works[0].result()

    return session.start(operations, finish)


def _broadcast(tensor: torch.Tensor, in_place: bool, root: int, name: str | None, session: Session | None) -> int:
    session = session or current()
    name = name or session.unique_name("broadcast")
    if not isinstance(root, int) or not 0 <= root < session.size:
        raise ValueError(f"Tensor '{name}': root_rank is {root!r}, but must be a rank from 0 to {session.size - 1}.")
    work = Work(tensor, name, in_place=in_place)
    dtype, shape = dtype_name(tensor.dtype), tuple(tensor.shape)
    operation = Broadcast(name, work.bytes(), root=root, dtype=dtype, shape=shape)
    return session.start([operation], lambda results: work.result())


def _op(average: bool | None, op: ReduceOp | None) -> ReduceOp:
    if average is not None:
        if op is not None:
            raise ValueError("Give op, not average as well: average is deprecated.")
        warnings.warn("average is deprecated; use op=Average or op=Sum.", DeprecationWarning, stacklevel=4)
        return ReduceOp.Average if average else ReduceOp.Sum
    if op is not None and not isinstance(op, ReduceOp):
        raise ValueError(f"op is {op!r}, but must be Average, Sum, Min or Max.")
    return op or ReduceOp.Average


def _wire(compression: Recipe | None) -> str:
    if compression is not None and not isinstance(compression, RingRecipe):
        raise ValueError(
            f"{compression!r} keeps state per parameter; give it to DistributedOptimizer, not to allreduce."
        )
    return compression.wire if compression is not None else "native"


def _tensor(result: Any) -> torch.Tensor:
    assert isinstance(result, torch.Tensor)
    return result


def _tensors(result: Any) -> list[torch.Tensor]:
    assert isinstance(result, list)
    return result
