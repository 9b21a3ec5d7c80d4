"""The progress line: when, where and what."""

from __future__ import annotations

import io
from dataclasses import dataclass, field

import pytest

from sparse_ring.config import Config
from sparse_ring.observe.metrics import Metrics
from sparse_ring.observe.progress import Progress
from sparse_ring.observe.summary import Column, summary_table


@dataclass
class Session:
    rank: int = 0
    size: int = 2
    config: Config = field(default_factory=lambda: Config(progress="1", launcher="1"))
    metrics: Metrics = field(default_factory=Metrics)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 50.0

    def __call__(self) -> float:
        return self.now


def run_steps(progress: Progress, session: Session, clock: Clock, steps: int, seconds: float) -> None:
    for _ in range(steps):
        clock.now += seconds
        session.metrics.waiting_seconds += 0.003125
        progress.step()


def test_line_shows_rates_since_the_last_one() -> None:
    session, stream, clock = Session(), io.StringIO(), Clock()
    session.metrics.dense_bytes, session.metrics.message_bytes = 830, 10
    progress = Progress(session, stream=stream, clock=clock)
    run_steps(progress, session, clock, 1, 30.0)
    run_steps(progress, session, clock, 16, 0.0625)
    assert stream.getvalue() == "step 17 · 16.0 steps/s · message ratio 83 · waited 3.1 ms/step\r"
    run_steps(progress, session, clock, 2, 0.5)
    assert stream.getvalue().endswith("\rstep 19 · 2.0 steps/s · message ratio 83 · waited 3.1 ms/step\r")


def test_loss_is_shown_where_it_is_given() -> None:
    session, stream, clock = Session(), io.StringIO(), Clock()
    progress = Progress(session, stream=stream, clock=clock)
    progress.step()
    clock.now += 2.0
    progress.step(loss=0.123456)
    assert stream.getvalue() == "step 2 · 0.5 steps/s · loss 0.1235 · message ratio 1 · waited 0.0 ms/step\r"


def test_at_most_one_line_a_second() -> None:
    session, stream, clock = Session(), io.StringIO(), Clock()
    progress = Progress(session, stream=stream, clock=clock)
    run_steps(progress, session, clock, 81, 0.03125)
    assert stream.getvalue().count("\r") == 2


@pytest.mark.parametrize("stream_type", [Terminal, io.StringIO])
def test_without_the_launcher_lines_are_whole_and_rare(stream_type: type[io.StringIO]) -> None:
    session, stream, clock = Session(config=Config(progress="1")), stream_type(), Clock()
    progress = Progress(session, stream=stream, clock=clock)
    run_steps(progress, session, clock, 22, 1.0)
    assert stream.getvalue().splitlines() == [
        "step 11 · 1.0 steps/s · message ratio 1 · waited 3.1 ms/step",
        "step 21 · 1.0 steps/s · message ratio 1 · waited 3.1 ms/step",
    ]


@pytest.mark.parametrize(
    ("config", "rank", "terminal", "enabled"),
    [
        (Config(), 0, False, False),
        (Config(), 0, True, True),
        (Config(launcher="1"), 0, False, True),
        (Config(launcher="1"), 1, True, False),
        (Config(progress="0", launcher="1"), 0, True, False),
        (Config(progress="1"), 0, False, True),
        (Config(progress="1"), 1, False, False),
    ],
)
def test_shown_on_rank_0_where_somebody_sees_it(config: Config, rank: int, terminal: bool, enabled: bool) -> None:
    stream, clock = Terminal() if terminal else io.StringIO(), Clock()
    progress = Progress(Session(rank=rank, config=config), stream=stream, clock=clock)
    clock.now += 5.0
    progress.step()
    progress.close()
    assert (progress.enabled, bool(stream.getvalue())) == (False, enabled)


def test_close_writes_the_table_once() -> None:
    session, stream, clock = Session(), io.StringIO(), Clock()
    progress = Progress(session, stream=stream, clock=clock)
    session.metrics.steps = 2
    run_steps(progress, session, clock, 1, 7.0)
    run_steps(progress, session, clock, 1, 0.5)
    progress.close(session)
    progress.close()
    assert stream.getvalue() == f"{summary_table([Column('', session.metrics, 0.5)], 2)}\n"


def test_what_follows_the_warm_up_is_counted_apart() -> None:
    session, stream, clock = Session(), io.StringIO(), Clock()
    progress = Progress(session, stream=stream, clock=clock)
    session.metrics.steps, session.metrics.dense_bytes, session.metrics.message_bytes = 2, 100, 100
    run_steps(progress, session, clock, 3, 1.0)
    progress.warmed_up()
    session.metrics.steps, session.metrics.dense_bytes, session.metrics.message_bytes = 6, 300, 110
    run_steps(progress, session, clock, 4, 0.5)
    progress.close()
    table = stream.getvalue()
    assert "after 3 warm-up steps" in table
    assert [cell.strip() for cell in line_of(table, "message ratio")] == ["message ratio", "2.73", "20"]
    assert [cell.strip() for cell in line_of(table, "speed")] == ["speed", "1.5 steps/s", "2.0 steps/s"]


def line_of(table: str, name: str) -> list[str]:
    return next(line for line in table.splitlines() if line.startswith(f"│ {name} ")).strip("│").split("│")


def test_close_without_steps_says_nothing() -> None:
    stream = io.StringIO()
    Progress(Session(), stream=stream, clock=Clock()).close()
    assert stream.getvalue() == ""
