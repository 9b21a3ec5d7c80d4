"""The table at the end, to the letter."""

from __future__ import annotations

import pytest

from sparse_ring.observe.metrics import Metrics
from sparse_ring.observe.summary import Column, short, summary_table

SPARSE = Metrics(
    dense_bytes=4_000_000_000,
    message_bytes=50_000_000,
    ring_bytes=6_000_000_000.0,
    gradient_wire_bytes=150_000_000,
    sparse_elements=1_000_000_000,
    kept_elements=10_000_000,
    index_bytes=10_000_000,
    value_bytes=20_000_000,
    nonfinite_frames=2,
    exchange_seconds=5.0,
    exposed_seconds=1.25,
    waiting_seconds=1.5,
    steps=1000,
)
SPARSE_TABLE = """\
sparse_ring: 1000 steps on 4 ranks in 80.0 s; counted on rank 0
╭───────────────────────────┬──────────────────────────╮
│ speed                     │ 12.5 steps/s             │
│ gradients sent            │ 150 MB                   │
│ a dense fp32 ring sends   │ 6 GB                     │
│ message ratio             │ 80                       │
│ wire ratio                │ 40                       │
│ elements in sparse frames │ 100.00 %                 │
│ kept of those             │ 1 %                      │
│ bits per kept element     │ 8.00 index + 16.00 value │
│ exchange, hidden          │ 3.8 ms/step              │
│ exchange, exposed         │ 1.2 ms/step              │
│ waiting for other ranks   │ 0.2 ms/step              │
│ non-finite gradients      │ 2 frames sent empty      │
╰───────────────────────────┴──────────────────────────╯"""
DENSE = Metrics(dense_bytes=30, message_bytes=30, ring_bytes=30.0, gradient_wire_bytes=30, waiting_seconds=3.0, steps=2)
DENSE_TABLE = """\
sparse_ring: 2 steps on 2 ranks in 1.0 s; counted on rank 0
╭─────────────────────────┬────────────────╮
│ speed                   │ 2.0 steps/s    │
│ gradients sent          │ 30 B           │
│ a dense fp32 ring sends │ 30 B           │
│ message ratio           │ 1              │
│ wire ratio              │ 1              │
│ exchange, hidden        │ 0.0 ms/step    │
│ exchange, exposed       │ 0.0 ms/step    │
│ waiting for other ranks │ 1500.0 ms/step │
╰─────────────────────────┴────────────────╯"""
EMPTY_TABLE = """\
sparse_ring: 0 steps on 1 rank in 0.0 s; counted on rank 0
╭─────────────────────────┬─────────────╮
│ speed                   │ 0.0 steps/s │
│ gradients sent          │ 0 B         │
│ a dense fp32 ring sends │ 0 B         │
│ message ratio           │ 1           │
│ wire ratio              │ 1           │
│ exchange, hidden        │ 0.0 ms/step │
│ exchange, exposed       │ 0.0 ms/step │
│ waiting for other ranks │ 0.0 ms/step │
╰─────────────────────────┴─────────────╯"""


@pytest.mark.parametrize(
    ("metrics", "size", "seconds", "table"),
    [(SPARSE, 4, 80.0, SPARSE_TABLE), (DENSE, 2, 1.0, DENSE_TABLE), (Metrics(), 1, 0.0, EMPTY_TABLE)],
)
def test_table(metrics: Metrics, size: int, seconds: float, table: str) -> None:
    assert summary_table([Column("whole run", metrics, seconds)], size) == table


def test_table_is_the_same_whatever_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"COLUMNS": "20", "TERM": "dumb", "FORCE_COLOR": "1", "NO_COLOR": ""}.items():
        monkeypatch.setenv(name, value)
    assert summary_table([Column("whole run", SPARSE, 80.0)], 4) == SPARSE_TABLE


def test_large_numbers_fit() -> None:
    huge = Metrics(
        dense_bytes=10**18,
        message_bytes=10**9,
        ring_bytes=2e18,
        gradient_wire_bytes=10**9,
        sparse_elements=10**15,
        kept_elements=10**8,
        index_bytes=10**9,
        value_bytes=10**9,
        steps=10**9,
    )
    table = summary_table([Column("whole run", huge, 1e7), Column("after 100 warm-up steps", huge, 1e7)], 1024)
    assert max(map(len, table.splitlines())) <= 100
    assert "1000000000 " in table
    assert "2000000 TB" in table


@pytest.mark.parametrize(("ratio", "text"), [(1.0, "1"), (83.21, "83.2"), (999.4, "999"), (12345.6, "12346")])
def test_ratios_have_three_digits(ratio: float, text: str) -> None:
    assert short(ratio) == text
