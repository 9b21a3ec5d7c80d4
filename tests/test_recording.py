"""A job's timeline: what every rank did, in one file, on one clock."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from sparse_ring import ops
from sparse_ring.config import Config
from sparse_ring.engine import engine
from sparse_ring.observe.timeline import END, Track
from sparse_ring.observe.trace_file import read_events
from sparse_ring.observing import start_timeline, stop_timeline
from sparse_ring.recipe import Dense, TopK
from sparse_ring.recording import Recording
from sparse_ring.session import Session
from sparse_ring.transport.threads import ThreadWorld
from tests.helpers import run_mpi, run_ranks, start_mpi
from tests.optimizer.models import flat, loss_of, model_of, wrapped

RANKS = Path(__file__).parent / "ranks"
RECIPE = TopK(density=0.1, minimum_elements=10)
NAMES = ["0.weight", "0.bias", "2.weight", "2.bias"]


def train(session: Session, recipe: Any = RECIPE, steps: int = 2) -> torch.Tensor:
    model = model_of()
    optimizer = wrapped(session, model, recipe)
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(model, step, session.rank, session.size).backward()
        optimizer.step()
    return flat(model)


def spans(path: Path, rank: int, track: Track) -> list[dict[str, Any]]:
    events = [event for event in json.loads(path.read_text()) if event["ph"] == "X"]
    return [event for event in events if (event["pid"], event["tid"]) == (rank, track)]


@pytest.mark.parametrize("rides", [False, True])
@pytest.mark.parametrize("recipe", [RECIPE, Dense()])
def test_every_stage_of_every_rank_is_in_the_file(
    tmp_path: Path, recipe: Any, rides: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not rides:
        monkeypatch.setattr(engine, "PAYLOADS_BYTES", -1)
    path = tmp_path / "trace.json"

    def job(session: Session) -> list[str]:
        start_timeline(str(path), session=session)
        parts = sorted(entry.name for entry in tmp_path.iterdir())
        train(session, recipe)
        stop_timeline(session)
        assert json.loads(path.read_text())[-1]["name"] == END
        train(session, recipe)
        return parts

    assert {name for parts in run_ranks(2, job) for name in parts} <= {"trace.json.rank0", "trace.json.rank1"}
    assert [entry.name for entry in tmp_path.iterdir()] == ["trace.json"]
    for rank in range(2):
        training = Counter(event["name"] for event in spans(path, rank, Track.TRAINING))
        assert training == {
            "forward and backward": 2, "wait": 2, "optimizer step": 2, **{f"submit {name}": 2 for name in NAMES}
        }  # fmt: skip
        events = spans(path, rank, Track.ENGINE)
        buckets = [event for event in events if "tensors" in event.get("args", {})]
        shared = [name for event in buckets for name in event["args"]["tensors"] if name in NAMES]
        assert Counter(shared) == dict.fromkeys(NAMES, 2)
        stages = Counter(event["name"].split(" ")[0] for event in events)
        rounds = [event["args"]["data_bytes"] for event in events if event["name"] == "agreement"]
        sent = [event["args"]["sent_bytes"] for event in spans(path, rank, Track.EXCHANGE)]
        assert (sum(rounds) > 0) == rides
        assert len(sent) == (0 if rides else stages["gradient" if recipe is RECIPE else "allreduce"])
        assert all(nbytes > 0 for nbytes in sent)
        if recipe is RECIPE:
            assert stages["aggregate"] == stages["gradient"] > 0
            # What rode is decoded parameter by parameter, messages rank by rank.
            assert stages["decode"] == (2 * len(NAMES) if rides else 2 * len(sent))
            # Each parameter by itself, as its gradient comes.
            assert stages["compress"] == 2 * len(NAMES)


def test_spans_of_a_track_lie_within_or_beside_each_other(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"

    def closure_job(session: Session) -> None:
        start_timeline(str(path), session=session)
        train(session)
        model = model_of()
        optimizer = wrapped(session, model, RECIPE)

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, 0, session.rank, session.size)
            loss.backward()
            return loss

        optimizer.step(closure)
        stop_timeline(session)

    run_ranks(2, closure_job)
    for rank in range(2):
        for track in Track:
            open_until: list[float] = []
            for event in sorted(spans(path, rank, track), key=lambda event: (event["ts"], -event["dur"])):
                begin, end = event["ts"], event["ts"] + event["dur"]
                # Microseconds with three digits: sums may differ in the last.
                while open_until and open_until[-1] <= begin + 0.002:
                    open_until.pop()
                assert not open_until or end <= open_until[-1] + 0.002, event
                open_until.append(end)


def test_rank_0s_setting_counts_for_all_and_the_end_of_the_job_joins(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"

    world = ThreadWorld(2)
    configs = [Config(timeline=str(path), timeline_mark_cycles=True), Config()]

    def run(rank: int) -> None:
        with Session(world.transport(rank), configs[rank]) as session:
            train(session)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [entry.name for entry in tmp_path.iterdir()] == ["trace.json"]
    events = json.loads(path.read_text())
    steps = Counter(event["pid"] for event in events if event["name"] == "optimizer step")
    assert steps == {0: 2, 1: 2}
    assert {event["pid"] for event in events if event["name"] == "cycle"} == {0}


def test_a_second_recording_is_refused_and_one_after_the_other_is_not(tmp_path: Path) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"

    def job(session: Session) -> None:
        start_timeline(str(first), session=session)
        with pytest.raises(ValueError, match=r"being recorded to .*first\.json; call stop_timeline\(\) first"):
            start_timeline(str(second), session=session)
        stop_timeline(session)
        start_timeline(str(second), session=session)
        ops.allreduce(torch.ones(100_000), name="ones", session=session)
        stop_timeline(session)

    run_ranks(2, job)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["first.json", "second.json"]
    assert [event["name"] for event in spans(second, 1, Track.EXCHANGE)] == ["exchange ones"]


def test_where_it_cannot_be_written_training_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def job(session: Session) -> tuple[bool, torch.Tensor]:
        return session.timeline.on, train(session)

    with caplog.at_level(logging.WARNING, "sparse_ring"):
        results = run_ranks(2, job, Config(timeline=str(tmp_path / "missing" / "trace")))
    told = sorted(record.getMessage()[:48] for record in caplog.records)
    assert told == [f"Rank {rank}: the timeline cannot be written to {tmp_path}"[:48] for rank in range(2)]
    assert [on for on, _ in results] == [False, False]
    for _, parameters in results:
        assert torch.equal(parameters, run_ranks(2, train)[0])


def test_files_that_are_not_there_are_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "trace.json"

    def job(session: Session) -> None:
        start_timeline(str(path), session=session)
        session.recording.close()
        ops.barrier(session)
        if session.rank == 1:
            os.remove(f"{path}.rank1")
        ops.barrier(session)

    with caplog.at_level(logging.WARNING, "sparse_ring"):
        run_ranks(2, job)
    (record,) = caplog.records
    assert record.getMessage() == (
        f"{path} has no timeline of ranks [1]: no trace.json.rank1, … of this run here. Where they were written on other "
        f"hosts, copy them beside the others; then: python -m sparse_ring.observe.merge {path}"
    )
    assert {event["pid"] for event in json.loads(path.read_text())} == {0}


def test_ending_what_was_not_started_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def job(session: Session) -> bool:
        recording = Recording(session.timeline, session.engine)
        recording.close()
        recording.join()
        stop_timeline(session)
        return session.timeline.failed

    assert run_ranks(2, job) == [False, False]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.ranks
def test_processes_write_one_file_through_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.json"
    monkeypatch.setenv("HOROVOD_TIMELINE", str(path))
    run_mpi(3, RANKS / "timeline.py")
    assert [entry.name for entry in tmp_path.iterdir()] == ["trace.json"]
    assert [len(spans(path, rank, Track.EXCHANGE)) for rank in range(3)] == [1, 1, 1]


@pytest.mark.faults
@pytest.mark.ranks
def test_a_job_that_crashes_leaves_valid_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "trace.json"
    monkeypatch.setenv("SPARSE_RING_TIMELINE", str(path))
    done = start_mpi(2, RANKS / "timeline.py", "raise")
    assert done.returncode != 0
    for rank in range(2):
        part = Path(f"{path}.rank{rank}")
        assert json.loads(part.read_text()) == read_events(part)
    # The rank that raised had written everything before it ended the job.
    names = [event["name"] for event in read_events(f"{path}.rank1")]
    assert "exchange ones" in names
    assert names[-1] == END
