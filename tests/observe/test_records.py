"""Records: when there is one, what it says to the letter, and that a failing file ends them quietly."""

from __future__ import annotations

import importlib.util
import json
import logging
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sparse_ring.config import Config
from sparse_ring.errors import SparseRingError
from sparse_ring.observe.metrics import Metrics
from sparse_ring.observe.records import Records
from sparse_ring.observe.reported import Reported
from sparse_ring.observe.tensorboard import TensorBoard


@dataclass
class Session:
    config: Config
    rank: int = 0
    size: int = 2
    metrics: Metrics = field(default_factory=Metrics)
    reported: Reported = field(default_factory=Reported)


class Loop:
    """A training loop with a clock of its own; a step takes a quarter of a second."""

    def __init__(self, config: Config, rank: int = 0) -> None:
        self.session, self.now = Session(config, rank), 100.0
        self.records = Records(self.session, clock=lambda: self.now, wall=lambda: 1e9 + self.now)

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            metrics = self.session.metrics
            metrics.steps += 1
            metrics.dense_bytes, metrics.message_bytes = metrics.dense_bytes + 400, metrics.message_bytes + 40
            metrics.ring_bytes, metrics.gradient_wire_bytes = metrics.ring_bytes + 600, metrics.gradient_wire_bytes + 60
            metrics.sparse_elements, metrics.kept_elements = metrics.sparse_elements + 100, metrics.kept_elements + 10
            metrics.index_bytes, metrics.value_bytes = metrics.index_bytes + 10, metrics.value_bytes + 20
            metrics.exchange_seconds, metrics.exposed_seconds = (metrics.steps * 0.125, metrics.steps * 0.0625)
            self.now += 0.25
            self.records.step(lambda: 7.5)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def steps(path: Path) -> list[int]:
    return [line["step"] for line in lines(path) if "step" in line]


def test_a_run_to_the_letter(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    loop = Loop(Config(metrics=str(path), metrics_seconds=1.0, metrics_residual=True))
    loop.step()
    loop.session.reported.update({"loss": 3})
    loop.session.reported.update({"loss": 2.5, "accuracy": math.nan})
    loop.step(4)
    # What comes after the last step is not part of the record that ends the run.
    loop.step()
    loop.now += 1000.0
    loop.records.close()
    loop.records.close()
    header, first, second, last = lines(path)
    assert header == {"format": 1, "rank": 0, "size": 2, "started": 1_000_000_100.0}
    assert (first["step"], first["steps"], first["seconds"], first["reported"]) == (1, 1, 0.25, {})
    assert second == {
        "step": 5, "time": 1_000_000_101.25, "seconds": 1.0, "steps": 4, "exchange_seconds": 0.5,
        "exposed_seconds": 0.25, "waiting_seconds": 0.0, "dense_bytes": 1600, "message_bytes": 160, "ring_bytes": 2400.0,
        "gradient_wire_bytes": 240, "control_bytes": 0, "sparse_elements": 400, "kept_elements": 40, "index_bytes": 40,
        "value_bytes": 80, "nonfinite_frames": 0, "message_ratio": 10.0, "wire_ratio": 10.0, "density": 0.1,
        "index_bits": 8.0, "value_bits": 16.0, "warmed_up": False, "reported": {"loss": 2.5, "accuracy": None},
        "residual_norm": 7.5,
    }  # fmt: skip
    assert (last["step"], last["steps"], last["seconds"], last["reported"]) == (6, 1, 0.25, {})
    assert "residual_norm" not in last


def test_records_come_by_steps(tmp_path: Path) -> None:
    loop = Loop(Config(metrics=str(tmp_path / "m"), metrics_seconds=0.0, metrics_steps=3))
    loop.step(8)
    assert steps(tmp_path / "m") == [1, 4, 7]
    loop.records.close()
    assert steps(tmp_path / "m") == [1, 4, 7, 8]
    assert "residual_norm" not in lines(tmp_path / "m")[1]


def test_warm_up_ends_a_record(tmp_path: Path) -> None:
    loop = Loop(Config(metrics=str(tmp_path / "m")))
    loop.step(3)
    loop.records.warmed_up(lambda: 0.0)
    loop.step(4)
    loop.records.close()
    told = [(line["step"], line["warmed_up"]) for line in lines(tmp_path / "m")[1:]]
    assert told == [(1, False), (3, False), (7, True)]


def test_a_run_is_appended_to_the_one_before(tmp_path: Path) -> None:
    for _ in range(2):
        loop = Loop(Config(metrics=str(tmp_path / "m")))
        loop.step(2)
        loop.records.close()
    assert [line.get("step", "header") for line in lines(tmp_path / "m")] == ["header", 1, 2, "header", 1, 2]


def test_a_run_after_a_torn_line_starts_on_its_own(tmp_path: Path) -> None:
    (tmp_path / "m").write_text('{"format":1}\n{"step":')
    loop = Loop(Config(metrics=str(tmp_path / "m")))
    loop.step()
    loop.records.close()
    _, torn, header, record = (tmp_path / "m").read_text().splitlines()
    assert torn == '{"step":'
    assert (json.loads(header)["started"], json.loads(record)["step"]) == (1_000_000_100.0, 1)


def test_rank_0_writes_unless_the_name_holds_the_rank(tmp_path: Path) -> None:
    for rank in range(2):
        for name in ("one", "each-%r"):
            loop = Loop(Config(metrics=str(tmp_path / name)), rank)
            loop.step()
            loop.records.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["each-0", "each-1", "one"]
    assert [line["rank"] for line in lines(tmp_path / "one") + lines(tmp_path / "each-1") if "rank" in line] == [0, 1]


def test_nothing_is_asked_where_nothing_is_recorded() -> None:
    loop = Loop(Config())
    loop.session.metrics.steps = 1
    loop.records.step(lambda: pytest.fail("asked"))
    loop.records.warmed_up(lambda: pytest.fail("asked"))
    loop.records.close()


def test_dense_steps_have_no_density(tmp_path: Path) -> None:
    loop = Loop(Config(metrics=str(tmp_path / "m")))
    loop.session.metrics.steps = 1
    loop.records.step(lambda: 0.0)
    loop.records.close()
    record = lines(tmp_path / "m")[1]
    assert (record["density"], record["index_bits"], record["value_bits"]) == (None, None, None)


@pytest.mark.parametrize(
    ("path", "reason"), [("/nowhere/m", "No such file or directory"), ("/dev/full", "No space left on device")]
)
def test_a_file_that_cannot_be_written_is_one_warning(path: str, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "sparse_ring"):
        loop = Loop(Config(metrics=path))
        loop.step(9)
        loop.records.close()
    said = f"Rank 0: metrics cannot be written to {path} ({reason}). They end here; training goes on."
    assert [record.getMessage() for record in caplog.records] == [said]


def test_tensorboard_gets_the_same_numbers(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    loop = Loop(Config(tensorboard=str(tmp_path)))
    loop.step()
    loop.session.reported.update({"loss": 2.5})
    loop.step(4)
    loop.records.close()
    events = EventAccumulator(str(tmp_path)).Reload()
    ratios = [(event.step, event.wall_time, event.value) for event in events.Scalars("sparse_ring/message_ratio")]
    assert ratios == [(1, 1_000_000_100.25, 10.0), (5, 1_000_000_101.25, 10.0)]
    assert [(event.step, event.value) for event in events.Scalars("reported/loss")] == [(5, 2.5)]


@pytest.mark.parametrize("rank", [0, 1])
def test_tensorboard_that_is_missing_names_the_extra_on_every_rank(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SparseRingError, match=r"pip install 'sparse-ring\[report\]'"):
        Loop(Config(tensorboard="runs"), rank)
    with pytest.raises(SparseRingError, match="tensorboard is not installed"):
        TensorBoard("runs")


def test_reported_values_are_read_late_and_once() -> None:
    read: list[str] = []

    class Value:
        def __float__(self) -> float:
            read.append("read")
            return 1.5

    reported = Reported()
    assert reported.loss is None
    reported.update({"loss": Value()})
    reported.update({"loss": Value()})
    assert read == []
    assert reported.take() == {"loss": 1.5}
    assert (reported.take(), len(read)) == ({}, 1)
    assert reported.loss is not None
