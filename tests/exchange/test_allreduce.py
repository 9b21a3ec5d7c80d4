from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sparse_ring.config import Config
from sparse_ring.errors import ConfigError, MessageError
from sparse_ring.exchange.allreduce import Allreduce
from sparse_ring.exchange.exchanges import MOST_REMEMBERED
from sparse_ring.session import Session
from tests.contracts.exchange import ring_twin, to_bfloat16
from tests.helpers import run_ranks, same_bits


def inputs(size: int) -> list[Any]:
    rng = np.random.default_rng(3)
    return [rng.standard_normal(1001).astype(np.float32) for _ in range(size)]


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("wire", ["native", "bfloat16"])
def test_average_is_the_rings_sum_divided_once(size: int, wire: str) -> None:
    ranks = inputs(size)

    def call(session: Session) -> Any:
        own = ranks[session.rank].copy()
        result = session.submit(Allreduce("x", own, exchanges=session.exchanges, wire=wire)).wait()
        assert result is own
        return result

    rounding = to_bfloat16 if wire == "bfloat16" and size > 1 else lambda values: values
    expected = ring_twin(ranks, "Sum", rounding) / np.float32(size)
    assert all(same_bits(result, expected) for result in run_ranks(size, call))


def test_results_do_not_depend_on_what_shares_the_bucket() -> None:
    def call(session: Session) -> list[Any]:
        rng = np.random.default_rng(session.rank)
        arrays = [rng.standard_normal(n).astype(np.float32) for n in (1, 3, 10, 101, 0, 7)]
        arrays = [array for array in arrays for _ in range(2)]
        handles = session.submit_all(
            [Allreduce(f"{i}", array.copy(), "Sum", exchanges=session.exchanges) for i, array in enumerate(arrays)]
        )
        return [handle.wait() for handle in handles]

    fused = run_ranks(3, call)
    alone = run_ranks(3, call, Config(fusion_threshold=0))
    for rank in range(3):
        assert all(same_bits(one, other) for one, other in zip(fused[rank], alone[0], strict=True))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_absent_rank_gives_zeros(dtype: str) -> None:
    def call(session: Session) -> tuple[Any, Any, Any]:
        absent = session.rank == 1
        array = np.full(4, 2.0, np.float32) if dtype == "float32" else np.full(4, 0x4000, np.uint16)
        nowhere = array.copy()
        made = {"exchanges": session.exchanges, "dtype": dtype, "gradient": True}
        some = Allreduce("some", array, absent=absent, **made)
        none = Allreduce("none", nowhere, absent=True, **made)
        results = [handle.wait() for handle in session.submit_all([some, none])]
        return results[0].tolist(), results[1], nowhere.tolist()

    full, half = (2.0, 1.0) if dtype == "float32" else (0x4000, 0x3F80)
    assert run_ranks(2, call) == [([half] * 4, None, [full] * 4)] * 2


@pytest.mark.parametrize(("wire", "item"), [("native", 4), ("bfloat16", 2)])
def test_what_rides_with_the_requests_is_counted_as_data(wire: str, item: int) -> None:
    def call(session: Session) -> tuple[int, ...]:
        array, metrics = np.zeros(300, np.float32), session.metrics
        before = metrics.copy()
        session.submit(Allreduce("x", array, exchanges=session.exchanges, wire=wire, gradient=True)).wait()
        spent = metrics.since(before)
        assert spent.control_bytes < 200
        return spent.sent_bytes, spent.received_bytes, spent.gradient_wire_bytes, spent.message_bytes

    # Each rank sends its elements to both others, not rounded yet.
    assert run_ranks(3, call) == [(2400, 2400, 2400, 300 * item)] * 3


CASES = [
    *(("float32", op, wire, 1.0) for op in ("Sum", "Average", "Min", "Max") for wire in ("native", "bfloat16")),
    *(("float16", "Average", "native", 0.3), ("float64", "Sum", "native", 0.3), ("bfloat16", "Average", "native", 0.3)),
    *(("int8", "Average", "native", 1.0), ("int32", "Sum", "native", 0.5), ("uint8", "Max", "native", 1.0)),
]


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize(("dtype", "op", "wire", "factor"), CASES)
def test_riding_and_the_ring_give_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, size: int, dtype: str, op: str, wire: str, factor: float
) -> None:
    def call(session: Session) -> list[Any]:
        rng = np.random.default_rng(session.rank)
        stored = np.dtype("uint16") if dtype == "bfloat16" else np.dtype(dtype)
        arrays = []
        for elements in (1, 2, 5, 64, 301):
            if dtype == "bfloat16":
                arrays.append(to_bits(rng.standard_normal(elements).astype(np.float32)))
            else:
                arrays.append((rng.standard_normal(elements) * 50).astype(stored))
            if stored.kind == "f" and elements > 4:
                # Signs and payloads of NaN, and of zero under Min and Max, depend on the order.
                arrays[-1][:4] = [np.nan, -np.nan, -0.0, 0.0][session.rank % 2 :] + [np.inf] * (session.rank % 2)
        made = [
            Allreduce(
                f"{i}", array, op, exchanges=session.exchanges, wire=wire, prescale=factor, dtype=dtype,
                absent=session.rank == 1 and i == 4,
            )
            for i, array in enumerate(arrays)
        ]  # fmt: skip
        return [handle.wait() for handle in session.submit_all(made)]

    with monkeypatch.context() as patch:
        patch.setattr("sparse_ring.exchange.ring.DenseRing.allreduce", None)
        rode = run_ranks(size, call)
    monkeypatch.setattr("sparse_ring.engine.engine.payload_room_bytes", lambda ranks: 0)
    ring = run_ranks(size, call)
    for rank in range(size):
        assert all(same_bits(one, other) for one, other in zip(rode[rank], ring[0], strict=True))


def to_bits(values: Any) -> Any:
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def test_a_payload_only_some_ranks_attach_does_not_ride() -> None:
    def call(session: Session) -> Any:
        if session.rank == 0:
            session.engine._payload_room_bytes = 0
        array = np.arange(10, dtype=np.float32)
        result = session.submit(Allreduce("x", array, "Sum", exchanges=session.exchanges, prescale=2.0)).wait()
        return result.tolist(), session.metrics.sent_bytes > 0

    assert run_ranks(3, call) == [([6.0 * i for i in range(10)], True)] * 3


def test_a_payload_of_the_wrong_length_names_rank_and_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Allreduce.payload

    def payload(self: Allreduce, size: int) -> bytes:
        data = honest(self, size)
        return data[:-1] if self.array[0] == 1 else data

    monkeypatch.setattr(Allreduce, "payload", payload)

    def call(session: Session) -> str:
        array = np.full(3, session.rank, np.float32)
        bad = session.submit(Allreduce("bad", array, "Sum", exchanges=session.exchanges))
        with pytest.raises(MessageError, match="payload of 11 bytes instead of 12") as caught:
            bad.wait()
        good = np.full(3, 2.0, np.float32)
        assert session.submit(Allreduce("good", good, exchanges=session.exchanges)).wait().tolist() == [2.0] * 3
        return f"{caught.value.rank} {caught.value.parameter}"

    assert run_ranks(2, call) == ["1 bad"] * 2


@pytest.mark.parametrize(("wire", "item"), [("native", 4), ("bfloat16", 2)])
def test_gradients_are_counted_and_others_are_not(wire: str, item: int) -> None:
    def call(session: Session) -> tuple[Any, ...]:
        metrics, exchanges = session.metrics, session.exchanges
        session.submit(Allreduce("other", np.zeros(300, np.float32), exchanges=exchanges)).wait()
        before = (metrics.dense_bytes, metrics.message_bytes, metrics.gradient_wire_bytes, metrics.exchange_seconds)
        operations = [
            Allreduce(f"{i}", np.zeros(30000 * i, np.float32), exchanges=exchanges, wire=wire, gradient=True)
            for i in (1, 2)
        ]
        for handle in session.submit_all(operations):
            handle.wait()
        assert metrics.exchange_seconds > 0
        return before, metrics.dense_bytes, metrics.message_bytes, metrics.ring_bytes, metrics.gradient_wire_bytes

    sent = 90000 * item * 2 * 2 // 3
    assert run_ranks(3, call) == [((0, 0, 0, 0.0), 360000, 90000 * item, 360000 * 4 / 3, sent)] * 3


def test_the_request_says_what_must_agree() -> None:
    def call(session: Session) -> list[tuple[str, str, int]]:
        floats, bits = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.uint16)
        made = [
            Allreduce("x", floats, exchanges=session.exchanges),
            Allreduce("x", floats, "Sum", exchanges=session.exchanges, wire="bfloat16", gradient=True),
            Allreduce("x", bits, "Max", exchanges=session.exchanges, dtype="bfloat16", prescale=0.5, postscale=2.0),
            Allreduce("x", np.zeros((2, 3), np.int8), exchanges=session.exchanges),
        ]
        with pytest.raises(ConfigError, match=r"wire is 'int8', but must be one of native, bfloat16, float16\."):
            Allreduce("x", floats, exchanges=session.exchanges, wire="int8")
        with pytest.raises(ValueError, match="op is 'Product', but must be one of Average, Sum, Min, Max"):
            Allreduce("x", floats, "Product", exchanges=session.exchanges)
        assert len({operation.fusion_key for operation in made}) == 4
        assert {operation.request.shape for operation in made} == {(2, 3)}
        return [(operation.request.dtype, operation.request.detail, operation.nbytes) for operation in made]

    assert run_ranks(1, call)[0] == [
        ("float32", "op=Average", 24),
        ("float32", "op=Sum, wire=bfloat16, gradient", 12),
        ("bfloat16", "op=Max, prescale=0.5, postscale=2.0", 12),
        ("int8", "op=Average", 24),
    ]


def test_names_that_are_used_once_do_not_fill_the_memory() -> None:
    def call(session: Session) -> int:
        array = np.zeros(2, np.float32)
        for number in range(2 * MOST_REMEMBERED):
            Allreduce(f"once.{number}", array, exchanges=session.exchanges)
        assert Allreduce("x", array, exchanges=session.exchanges).request is (
            Allreduce("x", array, exchanges=session.exchanges).request
        )
        return len(session.exchanges._remembered)

    assert run_ranks(1, call)[0] <= MOST_REMEMBERED
