from __future__ import annotations

from typing import Any

import pytest
import torch

from sparse_ring import ops
from sparse_ring.errors import NotInitializedError
from sparse_ring.recipe import BF16, Dense, GradSA, OneBit
from sparse_ring.session import Session
from sparse_ring.views import Work
from tests.helpers import run_ranks


def test_average_is_deprecated_and_excludes_op() -> None:
    def call(session: Session) -> Any:
        with pytest.raises(ValueError, match="Give op, not average as well"):
            ops.allreduce(torch.ones(1), average=False, op=ops.Sum, session=session)
        with pytest.warns(DeprecationWarning, match="use op=Average or op=Sum") as caught:
            result = ops.allreduce(torch.full((1,), 4.0), average=False, session=session)
        return result.item(), caught[0].filename == __file__

    assert run_ranks(1, call) == [(4.0, True)]


def test_calls_that_cannot_work_are_value_errors_naming_the_tensor() -> None:
    def call(session: Session) -> list[str]:
        texts = []
        for wrong in [
            lambda: ops.allreduce(torch.ones(1, dtype=torch.bool), name="b", op=ops.Sum, session=session),
            lambda: ops.allreduce(torch.ones(1, dtype=torch.complex64), name="c", op=ops.Min, session=session),
            lambda: ops.allreduce(torch.ones(1).to_sparse(), name="s", session=session),
            lambda: ops.allreduce([1.0], name="l", session=session),  # type: ignore[arg-type]
            lambda: ops.allreduce(torch.ones(1).to(torch.float8_e5m2), name="f", session=session),
            lambda: ops.allreduce(torch.ones(1), name="n", prescale_factor=float("nan"), session=session),
            lambda: ops.allreduce(torch.ones(1), op="Sum", session=session),  # type: ignore[arg-type]
            lambda: ops.allreduce(torch.ones(1), compression=GradSA(), session=session),
            lambda: ops.allreduce(torch.ones(1), compression=OneBit(), session=session),
            lambda: ops.broadcast(torch.ones(1), 2, name="r", session=session),
            lambda: ops.broadcast(torch.ones(1), -1, name="r", session=session),
        ]:
            with pytest.raises(ValueError) as caught:
                wrong()
            texts.append(str(caught.value))
        assert not session.pending
        return texts

    texts = run_ranks(2, call)[1]
    beginnings = [
        "Tensor 'b': bool cannot be summed, averaged or scaled",
        "Tensor 'c': complex numbers have no Min.",
        "Tensor 's': a torch.sparse_coo tensor is not supported",
        "Tensor 'l': list is not supported",
        "Tensor 'f': dtype float8_e5m2 can't be reduced; use one of float32, ",
        "Tensor 'n': scale factors must be finite, not nan and 1.0.",
        "op is 'Sum', but must be Average, Sum, Min or Max.",
        "GradSA(",
        "OneBit(",
        "Tensor 'r': root_rank is 2, but must be a rank from 0 to 1.",
        "Tensor 'r': root_rank is -1, but must be a rank from 0 to 1.",
    ]
    for text, beginning in zip(texts, beginnings, strict=True):
        assert text.startswith(beginning)


def test_a_name_in_flight_twice_is_a_value_error() -> None:
    def call(session: Session) -> float:
        if session.rank == 0:
            handle = ops.allreduce_async(torch.ones(1), name="twice", op=ops.Sum, session=session)
            with pytest.raises(ValueError, match="'twice' is still in flight on rank 0"):
                ops.allreduce_async(torch.ones(1), name="twice", session=session)
            ops.barrier(session)
        else:
            ops.barrier(session)
            handle = ops.allreduce_async(torch.ones(1), name="twice", op=ops.Sum, session=session)
        return float(ops.synchronize(handle, session))

    assert run_ranks(2, call) == [2.0, 2.0]


def test_a_group_ends_before_its_first_error_is_raised() -> None:
    def call(session: Session) -> tuple[str, float]:
        shape = 2 + session.rank
        tensors = [torch.ones(2), torch.ones(shape), torch.ones(2)]
        handle = ops.grouped_allreduce_async_(tensors, name="group", op=ops.Sum, session=session)
        with pytest.raises(RuntimeError) as caught:
            ops.synchronize(handle, session)
        return str(caught.value)[:16], tensors[2].sum().item()

    assert run_ranks(2, call) == [("Tensor 'group.1'", 4.0)] * 2


def test_automatic_names_count_by_kind() -> None:
    def call(session: Session) -> list[str]:
        return [session.unique_name(kind) for kind in ("allreduce", "allreduce", "broadcast")]

    assert run_ranks(2, call) == [["allreduce.noname.1", "allreduce.noname.2", "broadcast.noname.1"]] * 2


def test_bf16_compression_rounds_float32_alone() -> None:
    def call(session: Session) -> tuple[float, float, float]:
        value = 1.0 + 2.0**-12
        single = ops.allreduce(torch.tensor(value), compression=BF16(), op=ops.Max, session=session)
        double = ops.allreduce(
            torch.tensor(value, dtype=torch.float64), compression=BF16(), op=ops.Max, session=session
        )
        dense = ops.allreduce(torch.tensor(value), compression=Dense(), op=ops.Max, session=session)
        return single.item(), double.item(), dense.item()

    assert run_ranks(2, call) == [(1.0, 1.0 + 2.0**-12, 1.0 + 2.0**-12)] * 2


def test_results_are_detached_and_inputs_may_require_gradients() -> None:
    def call(session: Session) -> bool:
        weight = torch.ones(3, requires_grad=True)
        results = [
            ops.allreduce(weight * 2, session=session),
            ops.allgather(weight.t(), session=session),
            ops.broadcast(weight.expand(2, 3), 0, session=session),
        ]
        return any(result.requires_grad for result in results)

    assert run_ranks(2, call) == [False, False]


def test_without_a_session_the_error_says_what_to_call() -> None:
    with pytest.raises(NotInitializedError, match=r"has not been initialized; use hvd.init\(\)"):
        ops.allreduce(torch.ones(1))
    with pytest.raises(ValueError):
        ops.poll(1)


def test_work_shares_memory_only_in_place() -> None:
    tensor = torch.ones(4)
    assert Work(tensor, "t", in_place=True).bytes().ctypes.data == tensor.data_ptr()
    assert Work(tensor, "t", in_place=False).bytes().ctypes.data != tensor.data_ptr()
