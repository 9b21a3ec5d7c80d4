"""The page and its pictures: what they are made of, and what is said where that is not there."""

from __future__ import annotations

import base64
import json
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sparse_ring.errors import SparseRingError
from sparse_ring.observe import plots
from sparse_ring.observe.history import Run, joined, read_runs
from sparse_ring.observe.report import NO_LOSS, main, write_report

HEADER = {"format": 1, "rank": 0, "size": 2, "started": 1_000_000_000.0}


def record(step: int, steps: int, **changes: Any) -> dict[str, Any]:
    return {
        "step": step, "time": 0.0, "seconds": 0.5 * steps, "steps": steps, "exchange_seconds": 0.25 * steps,
        "exposed_seconds": 0.125 * steps, "waiting_seconds": 0.15 * steps, "dense_bytes": 4000 * steps, "message_bytes": 40 * steps,
        "ring_bytes": 4000.0 * steps, "gradient_wire_bytes": 50 * steps, "control_bytes": 6 * steps,
        "sparse_elements": 1000 * steps, "kept_elements": 10 * steps, "index_bytes": 10 * steps,
        "value_bytes": 20 * steps, "nonfinite_frames": 0, "message_ratio": 100.0, "wire_ratio": 80.0, "density": 0.01,
        "index_bits": 8.0, "value_bits": 16.0, "warmed_up": False, "reported": {"loss": 1.0 / step}, **changes,
    }  # fmt: skip


RECORDS = [record(1, 1), record(10, 9), record(30, 20, warmed_up=True), record(60, 30, warmed_up=True)]


def write(path: Path, *entries: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path


def test_runs_are_read_and_summed_exactly(tmp_path: Path) -> None:
    first, second = read_runs(write(tmp_path / "m", HEADER, *RECORDS, HEADER, record(1, 1)))
    assert (len(first.records), len(second.records), first.warm_up_steps, second.warm_up_steps) == (4, 1, 10, 0)
    whole, warm = first.columns()
    assert (whole.title, whole.seconds, whole.metrics.steps, whole.metrics.dense_bytes) == (
        "whole run",
        30.0,
        60,
        240000,
    )
    assert (warm.title, warm.seconds, warm.metrics.steps) == ("after 10 warm-up steps", 25.0, 50)
    assert (whole.metrics.message_ratio, whole.metrics.wire_ratio, whole.metrics.kept_elements) == (100.0, 80.0, 600)


def test_runs_are_joined_with_their_steps_counted_on() -> None:
    whole = joined([Run(HEADER, RECORDS[:2]), Run(HEADER, RECORDS[:2])])
    assert [entry["step"] for entry in whole.records] == [1, 10, 11, 20]


def test_a_torn_line_is_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "m", HEADER, *RECORDS)
    path.write_text(path.read_text()[:-30])
    assert [entry["step"] for entry in read_runs(path)[0].records] == [1, 10, 30]


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([], "holds no record. Was SPARSE_RING_METRICS set, and was a step taken?"),
        ([HEADER], "holds no record"),
        ([{"format": 2}], r"line 1: no record of sparse_ring's metrics \(format 1\)"),
        ([HEADER, RECORDS[0], {"x": 1}], "line 3: no record"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, entries: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(SparseRingError, match=said):
        read_runs(write(tmp_path / "m", *entries))


def size_of(picture: bytes) -> tuple[int, int]:
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", picture[16:24])
    return width, height


LONG = [record(step, 1, reported={"loss": 5 / step, "validation_loss": 6 / step}) for step in range(1, 200)]


@pytest.mark.parametrize("records", [RECORDS, RECORDS[:1], RECORDS[:2], LONG, [record(5, 5, seconds=0.0)]])
def test_pictures_are_drawn_for_short_and_long_runs(records: list[dict[str, Any]]) -> None:
    run = Run(HEADER, records)
    for draw in (plots.loss, plots.ratios, plots.step_time, plots.sent_bytes):
        picture = draw(run)
        assert picture is not None
        assert size_of(picture) == (1120, 576)


def test_a_page_holds_pictures_and_table(tmp_path: Path) -> None:
    page = write_report(write(tmp_path / "m", HEADER, record(1, 1), HEADER, *RECORDS), tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "bytes.png", "index.html", "loss.png", "ratio.png", "step_time.png",
    ]  # fmt: skip
    text = page.read_text()
    embedded = [base64.b64decode(data) for data in re.findall(r'src="data:image/png;base64,([^"]+)"', text)]
    names = ("loss", "step_time", "ratio", "bytes")
    assert embedded == [(tmp_path / "out" / f"{name}.png").read_bytes() for name in names]
    assert "<h1>sparse_ring: 60 steps on 2 ranks in 30.0 s; counted on rank 0</h1>" in text
    assert "Started 2001-09-09 01:46:40 UTC, rank 0 of 2. The file holds 1 earlier run, not shown." in text
    assert "<tr><td>message ratio</td><td>100</td><td>100</td></tr>" in text
    assert "<tr><td>exchange, exposed</td><td>125.0 ms/step</td><td>125.0 ms/step</td></tr>" in text
    assert "<tr><td></td><td>whole run</td><td>after 10 warm-up steps</td></tr>" in text


def test_all_runs_make_one_page(tmp_path: Path) -> None:
    path = write(tmp_path / "m", HEADER, *RECORDS, HEADER, *RECORDS)
    text = write_report(path, tmp_path, all_runs=True).read_text()
    assert "120 steps on 2 ranks" in text
    assert "earlier run" not in text


def test_a_run_without_loss_says_how_to_report_it(tmp_path: Path) -> None:
    path = write(tmp_path / "m", HEADER, record(1, 1, reported={"accuracy": 1.0, "loss": None}))
    assert NO_LOSS in write_report(path, tmp_path).read_text()
    assert not (tmp_path / "loss.png").exists()


def test_command_writes_beside_the_metrics_or_says_why_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "m", HEADER, *RECORDS)
    assert main([str(path)]) == 0
    assert capsys.readouterr().out == f"Report: {tmp_path / 'index.html'}\n"
    assert main([str(tmp_path / "other")]) == 1
    assert capsys.readouterr().err == f"No report: [Errno 2] No such file or directory: '{tmp_path / 'other'}'\n"


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(SparseRingError, match=r"pip install 'sparse-ring\[report\]'"):
        plots.ratios(Run(HEADER, RECORDS))


def test_matplotlib_is_loaded_only_to_draw() -> None:
    code = (
        "import sys, sparse_ring.torch, sparse_ring.observe.report\n"
        "print([name for name in ('matplotlib', 'tensorboard') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
