from __future__ import annotations

from typing import Any

import pytest

from sparse_ring.engine.mismatch import mismatch
from sparse_ring.engine.operation import Request


def request(**changes: Any) -> Request:
    return Request(
        **{"name": "w", "kind": "allreduce", "dtype": "float32", "shape": (2, 3), "detail": "op=Sum", **changes}
    )


@pytest.mark.parametrize(
    ("requests", "text"),
    [
        (
            [request(), request(dtype="float64")],
            (
                "Mismatched data types: One rank had type float32, but another rank had type float64. "
                "(rank 0 had float32; rank 1 had float64)"
            ),
        ),
        (
            [request(), request(shape=(3, 2)), request(), request(shape=(3, 2), absent=True)],
            (
                "Mismatched ALLREDUCE tensor shapes: One rank sent a tensor of shape [2, 3], but another rank sent a tensor "
                "of shape [3, 2]. (ranks [0, 2] had [2, 3]; ranks [1, 3] had [3, 2])"
            ),
        ),
        (
            [request(), request(kind="allgather")],
            (
                "Mismatched operations: One rank did an allreduce, but another rank did an allgather. "
                "(rank 0 had allreduce; rank 1 had allgather)"
            ),
        ),
        (
            [request(kind="broadcast"), request(kind="broadcast"), request(kind="barrier")],
            (
                "Mismatched operations: One rank did a broadcast, but another rank did a barrier. "
                "(ranks [0, 1] had broadcast; rank 2 had barrier)"
            ),
        ),
        (
            [request(kind="broadcast", detail="root=0"), request(kind="broadcast", detail="root=1")],
            "Mismatched BROADCAST settings: rank 0 had root=0, but rank 1 had root=1. Give all ranks the same.",
        ),
        (
            [request(detail=""), request(detail="b"), request(detail="")],
            "Mismatched ALLREDUCE settings: ranks [0, 2] had none, but rank 1 had b. Give all ranks the same.",
        ),
        (
            [request(ragged=True, shape=(4, 2)), request(ragged=True, shape=(1, 3))],
            (
                "Mismatched ALLREDUCE tensor shapes: One rank sent a tensor of shape [4, 2], but another rank sent a tensor "
                "of shape [1, 3]. (rank 0 had [4, 2]; rank 1 had [1, 3])"
            ),
        ),
        (
            [request(ragged=True, shape=()), request(ragged=True, shape=(1,))],
            (
                "Mismatched ALLREDUCE tensor shapes: One rank sent a tensor of shape [], but another rank sent a tensor of "
                "shape [1]. (rank 0 had []; rank 1 had [1])"
            ),
        ),
        (
            [request(kind="allgather", shape=()), request(kind="allgather", shape=(), ragged=True)],
            "Mismatched ALLGATHER settings: rank 0 had ragged=False, but rank 1 had ragged=True. Give all ranks the same.",
        ),
    ],
)
def test_both_sides_are_named(requests: list[Request], text: str) -> None:
    assert mismatch(requests) == text


@pytest.mark.parametrize(
    "requests",
    [
        [request()] * 3,
        [request(), request(absent=True), request()],
        [request(ragged=True, shape=(4, 2)), request(ragged=True, shape=(0, 2))],
    ],
)
def test_equal_requests_agree(requests: list[Request]) -> None:
    assert mismatch(requests) is None
