"""Spans of one rank: what is written, when nothing is, and that a failing file ends it quietly."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from sparse_ring.observe import timeline as module
from sparse_ring.observe.timeline import END, Clock, Timeline, Track, title
from sparse_ring.observe.trace_file import TraceFile, read_events


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The clock's nanoseconds, in a list of one."""
    time = [0]
    monkeypatch.setattr(module, "now", lambda: time[0])
    return time


def test_spans_carry_rank_track_and_the_time_of_rank_0(tmp_path: Path, at: list[int]) -> None:
    timeline, path = Timeline(), tmp_path / "trace"
    timeline.start(str(path), 3, 4, Clock(origin=1_000_000, offset=500_000, error=2_400, run=77))
    at[0] = 1_700_500
    timeline.span(Track.TRAINING, "wait", 1_600_000)
    timeline.bucket = title(["fc.weight", "fc.bias", "conv.weight"])
    timeline.work("exchange", 1_510_000, Track.EXCHANGE, sent_bytes=12)
    timeline.mark(Track.ENGINE, "cycle")
    timeline.close()
    events = json.loads(path.read_text())
    assert [event for event in events if event["ph"] != "M"] == [
        {"name": "wait", "ph": "X", "pid": 3, "tid": 0, "ts": 100.0, "dur": 100.5},
        {
            "name": "exchange fc.weight + 2 more", "ph": "X", "pid": 3, "tid": 2, "ts": 10.0, "dur": 190.5,
            "args": {"sent_bytes": 12},
        },
        {"name": "cycle", "ph": "i", "pid": 3, "tid": 1, "ts": 200.5, "s": "p"},
        {"name": END, "ph": "i", "pid": 3, "tid": 0, "ts": 200.5, "s": "p"},
    ]  # fmt: skip
    facts = events[0]["args"]
    assert facts == {
        "run": 77, "rank": 3, "size": 4, "clock_offset_microseconds": 500.0, "clock_error_microseconds": 2.4,
    }  # fmt: skip
    names = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
    assert names == ["training", "engine", "exchange"]
    assert next(event for event in events if event["name"] == "process_name")["args"]["name"].startswith("rank 3 on ")


def test_nothing_is_kept_and_no_thread_runs_while_off() -> None:
    timeline, threads = Timeline(), threading.active_count()
    timeline.span(Track.ENGINE, "a", 0)
    timeline.work("b", 0)
    timeline.mark(Track.ENGINE, "c")
    timeline.flush()
    timeline.close()
    assert (len(timeline._events), threading.active_count()) == (0, threads)


def test_recordings_follow_each_other(tmp_path: Path) -> None:
    timeline, threads = Timeline(), threading.active_count()
    for name in ("one", "two"):
        timeline.start(str(tmp_path / name), 0, 1, Clock(origin=0))
        timeline.span(Track.ENGINE, name, 0)
        timeline.close()
        timeline.span(Track.ENGINE, "between", 0)
    assert threading.active_count() == threads
    for name in ("one", "two"):
        events = read_events(tmp_path / name)
        assert [event["name"] for event in events if event["ph"] == "X"] == [name]


def test_spans_of_many_threads_are_all_kept(tmp_path: Path) -> None:
    timeline = Timeline()
    timeline.start(str(tmp_path / "trace"), 0, 1, Clock(origin=0))

    def work(number: int) -> None:
        for index in range(500):
            timeline.span(Track.ENGINE, f"{number}.{index}", 0)
            if index % 50 == 0:
                timeline.flush()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    timeline.close()
    names = {event["name"] for event in read_events(tmp_path / "trace") if event["ph"] == "X"}
    assert names == {f"{number}.{index}" for number in range(4) for index in range(500)}


@pytest.mark.parametrize(
    ("path", "reason"), [("/dev/full", "No space left on device"), ("/nowhere/trace", "No such file or directory")]
)
def test_a_file_that_cannot_be_made_is_one_warning(path: str, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    timeline = Timeline()
    with caplog.at_level(logging.WARNING, "sparse_ring"):
        timeline.start(path, 1, 2, Clock(origin=0))
        timeline.span(Track.ENGINE, "a", 0)
        timeline.close()
    assert (timeline.on, timeline.failed) == (False, True)
    said = f"Rank 1: the timeline cannot be written to {path} ({reason}). It ends here; training goes on."
    assert [record.getMessage() for record in caplog.records] == [said]


@pytest.mark.faults
def test_a_disk_that_fills_up_is_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    timeline, path = Timeline(), tmp_path / "trace"
    timeline.start(str(path), 0, 1, Clock(origin=0))
    timeline.span(Track.ENGINE, "before", 0)
    timeline.flush()
    monkeypatch.setattr(TraceFile, "append", full)
    with caplog.at_level(logging.WARNING, "sparse_ring"):
        for _ in range(3):
            timeline.span(Track.ENGINE, "after", 0)
            timeline.flush()
        timeline.close()
    assert len(caplog.records) == 1
    assert [event["name"] for event in json.loads(path.read_text()) if event["ph"] == "X"] == ["before"]


@pytest.mark.faults
def test_a_killed_process_leaves_valid_json(tmp_path: Path) -> None:
    script = (
        "import sys, time\n"
        "from sparse_ring.observe.timeline import Clock, Timeline, Track\n"
        "timeline = Timeline()\n"
        "timeline.start(sys.argv[1], 0, 1, Clock(origin=0))\n"
        "timeline.span(Track.ENGINE, 'kept', 0)\n"
        "timeline.flush()\n"
        "timeline.span(Track.ENGINE, 'maybe', 0)\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    path = tmp_path / "trace"
    process = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert "kept" in [event["name"] for event in json.loads(path.read_text())]
