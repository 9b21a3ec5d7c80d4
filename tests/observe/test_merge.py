"""The ranks' files become one: whole, or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparse_ring.observe.merge import Merged, main, merge, part_of
from sparse_ring.observe.timeline import Clock, Timeline, Track
from sparse_ring.observe.trace_file import TraceFile


def record(path: Path, rank: int, *, run: int = 5, finished: bool = True) -> None:
    timeline = Timeline()
    timeline.start(part_of(str(path), rank), rank, 3, Clock(origin=0, run=run))
    timeline.span(Track.ENGINE, f"of {rank}", 0)
    if not finished:
        # As after a kill: what was flushed, without the end.
        timeline.flush()
        timeline._file = None
    timeline.close()


def spans(path: Path) -> list[tuple[int, str]]:
    return [(event["pid"], event["name"]) for event in json.loads(path.read_text()) if event["ph"] == "X"]


def test_finished_files_are_joined_and_deleted(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    for rank in range(3):
        record(path, rank)
    assert merge(str(path), 3, 5) == Merged((0, 1, 2), (), ())
    assert spans(path) == [(0, "of 0"), (1, "of 1"), (2, "of 2")]
    assert [entry.name for entry in tmp_path.iterdir()] == ["trace.json"]


def test_what_is_unfinished_stays_and_what_is_of_another_run_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    record(path, 0)
    record(path, 1, finished=False)
    record(path, 2, run=4)
    assert merge(str(path), 4, 5) == Merged((0, 1), (1,), (2, 3))
    assert spans(path) == [(0, "of 0"), (1, "of 1")]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["trace.json", "trace.json.rank1", "trace.json.rank2"]


def test_a_file_of_no_rank_is_an_empty_array(tmp_path: Path) -> None:
    (tmp_path / "trace.json.rank0").write_text("no trace\n")
    assert merge(str(tmp_path / "trace.json"), 1, 5) == Merged((), (), (0,))
    assert (tmp_path / "trace.json").read_text() == "[\n]\n"


def test_where_the_whole_cannot_be_written_the_parts_stay(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    record(path, 0)
    (tmp_path / "trace.json").mkdir()
    with pytest.raises(OSError, match="directory"):
        merge(str(path), 1, 5)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["trace.json", "trace.json.rank0"]


def test_command_joins_what_a_killed_job_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace.json"
    record(path, 0)
    record(path, 2, finished=False)
    torn = Path(part_of(str(path), 2))
    torn.write_text(torn.read_text()[:-8])
    assert main([str(path)]) == 0
    assert spans(path) == [(0, "of 0")]
    shown = capsys.readouterr()
    assert shown.out == f"{path}: ranks 0, 2\n"
    assert shown.err == "without ranks 1: no file, or one of another recording\n"


def test_command_says_where_nothing_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    TraceFile(str(tmp_path / "trace.rank0")).close()
    assert main([str(tmp_path / "trace")]) == 1
    assert capsys.readouterr().err == (f"No timeline of a rank lies beside {tmp_path / 'trace'} as trace.rank0, …\n")
