"""What every collective promises, as checks that run on each rank: as threads and, the same ones, under mpiexec.

Each check takes its rank's session, uses collectives and asserts exact values.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from sparse_ring import ops
from sparse_ring.errors import MismatchError
from sparse_ring.ops import Average, Max, Min, Sum
from sparse_ring.session import Session

FLOATS = [torch.float16, torch.float32, torch.float64, torch.bfloat16]
INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
COMPLEX = [torch.complex64, torch.complex128]
ANY = [*FLOATS, *INTEGERS, *COMPLEX, torch.bool]


def same(result: Any, expected: torch.Tensor) -> None:
    torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)


def total(session: Session) -> int:
    """Sum over ranks of (rank + 1)."""
    return session.size * (session.size + 1) // 2


def allreduce_every_dtype(session: Session) -> None:
    for dtype in [*FLOATS, *INTEGERS, *COMPLEX]:
        tensor = (torch.arange(7) * (session.rank + 1)).to(dtype)
        same(ops.allreduce(tensor, op=Sum, session=session), (torch.arange(7) * total(session)).to(dtype))
        same(tensor, (torch.arange(7) * (session.rank + 1)).to(dtype))
    for dtype in [*FLOATS, *INTEGERS]:
        tensor = (torch.arange(3) + session.rank).to(dtype)
        same(ops.allreduce(tensor, op=Min, session=session), torch.arange(3).to(dtype))
        same(ops.allreduce(tensor, op=Max, session=session), (torch.arange(3) + session.size - 1).to(dtype))
    mine = torch.tensor([session.rank == 0, True, False])
    same(ops.allreduce(mine, op=Max, session=session), torch.tensor([True, True, False]))
    same(ops.allreduce(mine, op=Min, session=session), torch.tensor([session.size == 1, True, False]))


def average_is_the_default_and_exact(session: Session) -> None:
    for dtype in [*FLOATS, *COMPLEX]:
        tensor = (torch.arange(5) * 2 * (session.rank + 1)).to(dtype)
        same(ops.allreduce(tensor, session=session), (torch.arange(5) * (session.size + 1)).to(dtype))


def integer_average_truncates_toward_zero(session: Session) -> None:
    # Of -7, 7 and 1 on rank 0 and zeros elsewhere.
    for dtype in INTEGERS[:4]:
        tensor = torch.tensor([-7, 7, 1] if session.rank == 0 else [0, 0, 0], dtype=dtype)
        expected = torch.tensor([-(7 // session.size), 7 // session.size, 1 // session.size], dtype=dtype)
        same(ops.allreduce(tensor, session=session), expected)


def average_does_not_overflow(session: Session) -> None:
    for dtype, value in [
        (torch.float16, 60000.0), (torch.uint8, 200), (torch.int8, -128), (torch.int16, 32767), (torch.int32, 2**31 - 1),
    ]:  # fmt: skip
        tensor = torch.full((9,), value, dtype=dtype)
        same(ops.allreduce(tensor, session=session), tensor)


def factors_scale_before_and_after(session: Session) -> None:
    for dtype in FLOATS:
        ones = torch.ones(4, dtype=dtype)
        result = ops.allreduce(ones, op=Sum, prescale_factor=0.5, postscale_factor=4.0, session=session)
        same(result, torch.full((4,), 2.0 * session.size, dtype=dtype))
        result = ops.allreduce(ones, prescale_factor=3.0, postscale_factor=0.5, session=session)
        same(result, torch.full((4,), 1.5, dtype=dtype))
    integers = torch.tensor([3, -3])
    result = ops.allreduce(integers, op=Sum, prescale_factor=0.5, session=session)
    same(result, torch.tensor([session.size, -session.size]))
    same(ops.allreduce(integers, op=Max, postscale_factor=0.5, session=session), torch.tensor([1, -1]))


def any_shape_and_strides(session: Session) -> None:
    factor = session.rank + 1
    base = torch.arange(48.0).reshape(2, 4, 3, 2) * factor
    shapes = [
        base.transpose(0, 2), base[:, ::2], base.to(memory_format=torch.channels_last), base[:, 1:2].expand(2, 5, 3, 2),
        base.flatten()[5:17], torch.tensor(2.0 * factor), torch.empty(0), torch.empty(3, 0, 2), base.conj(),
    ]  # fmt: skip
    for tensor in shapes:
        expected = tensor / factor * total(session)
        result = ops.allreduce(tensor, op=Sum, session=session)
        same(result, expected)
        assert result.shape == tensor.shape
    channels_last = ops.allreduce(shapes[2], session=session)
    assert channels_last.is_contiguous(memory_format=torch.channels_last)
    conjugate = torch.tensor([1 + 2j, 3 - 1j]).conj() * factor
    same(ops.allreduce(conjugate, op=Sum, session=session), conjugate / factor * total(session))


def in_place_writes_the_tensor_alone(session: Session) -> None:
    base = torch.zeros(4, 6) + session.rank
    for view in (base[1], base[:, 2], base[::2, ::3], torch.t(base)[4], base[3, 5]):
        before = base.clone()
        assert ops.allreduce_(view, op=Sum, session=session) is view
        same(view, torch.full_like(view, float(view.reshape(-1)[0])))
        view_of_before = torch.as_strided(before, view.shape, view.stride(), view.storage_offset())
        view_of_before.copy_(view)
        same(base, before)
        base.fill_(session.rank)
    row = torch.full((3, 1), float(session.rank))
    ops.allreduce_(row.expand(3, 4), op=Sum, session=session)
    same(row, torch.full((3, 1), float(total(session) - session.size)))
    scalar = torch.tensor(session.rank, dtype=torch.bfloat16)
    ops.allreduce_(scalar, op=Max, session=session)
    assert scalar.shape == ()
    assert scalar.item() == session.size - 1
    parameter = torch.nn.Parameter(torch.ones(3))
    assert ops.allreduce_(parameter, op=Sum, session=session) is parameter
    same(parameter.detach(), torch.full((3,), float(session.size)))


def grouped_forms_reduce_each_member(session: Session) -> None:
    def group() -> list[torch.Tensor]:
        return [torch.full((i + 1,), session.rank + i, dtype=dtype) for i, dtype in enumerate(ANY[:4])]

    expected = [torch.full_like(tensor, 2 * i + session.size - 1) for i, tensor in enumerate(group())]
    factors: dict[str, Any] = {"op": Average, "prescale_factor": 2.0, "session": session}
    copies, in_place, in_place_async = group(), group(), group()
    results = [
        ops.grouped_allreduce(copies, **factors),
        ops.grouped_allreduce_(in_place, name="group", **factors),
        ops.synchronize(ops.grouped_allreduce_async(copies, **factors), session),
        ops.synchronize(ops.grouped_allreduce_async_(in_place_async, **factors), session),
    ]
    for result in [*results, in_place, in_place_async]:
        for one, other in zip(result, expected, strict=True):
            same(one, other)
    for one, other in zip(copies, group(), strict=True):
        same(one, other)
    assert ops.grouped_allreduce([], session=session) == []


def handles_poll_and_synchronize_once(session: Session) -> None:
    tensors = [torch.full((50,), float(session.rank + i)) for i in range(20)]
    names = [f"tensor.{i}" for i in range(20)]
    order = list(range(20)) if session.rank % 2 else list(range(19, -1, -1))
    handles = {i: ops.allreduce_async_(tensors[i], name=names[i], op=Sum, session=session) for i in order}
    assert len(set(handles.values())) == 20
    for i in range(20):
        assert ops.synchronize(handles[i], session) is tensors[i]
        same(tensors[i], torch.full((50,), float(total(session) - session.size + i * session.size)))
        assert ops.synchronize(handles[i], session) is None
        with pytest.raises(ValueError, match=f"Handle {handles[i]} is unknown or was already synchronized"):
            ops.poll(handles[i], session)
    assert ops.synchronize(10**9, session) is None
    handle = ops.allreduce_async(torch.ones(1), session=session)
    while not ops.poll(handle, session):
        time.sleep(0.001)
    same(ops.synchronize(handle, session), torch.ones(1))


def allgather_joins_rows(session: Session) -> None:
    for dtype in ANY:
        mine = torch.full((session.rank, 2), session.rank).to(dtype)
        rows = [torch.full((rank, 2), rank).to(dtype) for rank in range(session.size)]
        same(ops.allgather(mine, session=session), torch.cat(rows))
    ranks = torch.arange(session.size)
    same(ops.allgather(torch.tensor(session.rank), session=session), ranks)
    strided = (torch.arange(6).reshape(2, 3) + 10 * session.rank).t()
    expected = torch.cat([(torch.arange(6).reshape(2, 3) + 10 * rank).t() for rank in range(session.size)])
    same(ops.synchronize(ops.allgather_async(strided, "gathered", session), session), expected)
    same(ops.allgather(torch.empty(2, 0), session=session), torch.empty(2 * session.size, 0))
    large = torch.full((40_000 * session.rank + 1,), float(session.rank))
    counts = torch.bincount(ops.allgather(large, session=session).long())
    assert counts.tolist() == [40_000 * rank + 1 for rank in range(session.size)]


def broadcast_copies_the_root(session: Session) -> None:
    for root in range(session.size):
        for dtype in ANY:
            tensor = torch.tensor([session.rank, 1, 0]).to(dtype)
            expected = torch.tensor([root, 1, 0]).to(dtype)
            same(ops.broadcast(tensor, root, session=session), expected)
            same(tensor, torch.tensor([session.rank, 1, 0]).to(dtype))
            assert ops.broadcast_(tensor, root, session=session) is tensor
            same(tensor, expected)
        scalar = torch.tensor(float(session.rank))
        same(ops.synchronize(ops.broadcast_async(scalar, root, session=session), session), torch.tensor(float(root)))
        # Long enough for the chain, with a last segment that is shorter.
        large = torch.arange(400_001.0) + session.rank
        handles = [ops.broadcast_async_(large, root, "large", session)]
        columns = [torch.full((2, 3), session.rank)[:, i] for i in range(3)]
        handles += [ops.broadcast_async_(column, root, f"{i}", session) for i, column in enumerate(columns)]
        for handle in handles:
            ops.synchronize(handle, session)
        same(large, torch.arange(400_001.0) + root)
        for column in columns:
            same(column, torch.tensor([root, root]))


def barrier_waits_for_all(session: Session) -> None:
    for _ in range(3):
        ops.barrier(session)


def mismatches_are_told_on_all_ranks(session: Session) -> None:
    if session.size == 1:
        return
    last = session.rank == session.size - 1
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: ops.allreduce(torch.ones(2, dtype=torch.int32 if last else torch.float32), name="a", session=session),
         "Tensor 'a': Mismatched data types: One rank had type float32, but another rank had type int32"),
        (lambda: ops.allreduce(torch.ones(3 if last else 2), name="b", session=session),
         "Tensor 'b': Mismatched ALLREDUCE tensor shapes: "),
        (lambda: ops.allreduce(torch.ones(2), name="c", op=Max if last else Sum, session=session), "Tensor 'c': Mismatched "),
        (lambda: (ops.allgather if last else ops.allreduce)(torch.ones(2), name="d", session=session),
         "Tensor 'd': Mismatched operations: "),
        (lambda: ops.broadcast(torch.ones(2), session.size - 1 if last else 0, name="e", session=session),
         "Tensor 'e': Mismatched BROADCAST "),
        (lambda: ops.allgather(torch.ones(2, 3 if last else 4), name="f", session=session),
         "Tensor 'f': Mismatched ALLGATHER tensor shapes: "),
        (lambda: ops.allreduce(torch.ones(2), name="g", prescale_factor=2.0 if last else 1.0, session=session),
         "Tensor 'g': Mismatched "),
    ]  # fmt: skip
    for call, text in cases:
        with pytest.raises(MismatchError) as caught:
            call()
        assert str(caught.value).startswith(text), str(caught.value)
        same(
            ops.allreduce(torch.ones(2), name=text[8:9], op=Sum, session=session), torch.full((2,), 1.0 * session.size)
        )


CHECKS: list[Callable[[Session], None]] = [
    allreduce_every_dtype,
    average_is_the_default_and_exact,
    integer_average_truncates_toward_zero,
    average_does_not_overflow,
    factors_scale_before_and_after,
    any_shape_and_strides,
    in_place_writes_the_tensor_alone,
    grouped_forms_reduce_each_member,
    handles_poll_and_synchronize_once,
    allgather_joins_rows,
    broadcast_copies_the_root,
    barrier_waits_for_all,
    mismatches_are_told_on_all_ranks,
]
