"""Clocks that are far apart are found so, within the error that is stated."""

from __future__ import annotations

import time

from sparse_ring.exchange.clock import ClockComparison
from sparse_ring.observe.timeline import Clock
from sparse_ring.session import Session
from tests.helpers import run_ranks

APART = [0, 5_000_000_000, -7_000_000_000_000]


def compare(session: Session) -> Clock:
    shifted = APART[session.rank]
    clock: Clock = session.submit(ClockComparison("clock", lambda: time.perf_counter_ns() + shifted)).wait()
    return clock


def test_offsets_lie_within_their_error() -> None:
    before = time.perf_counter_ns()
    clocks = run_ranks(3, compare)
    after = time.perf_counter_ns()
    assert (clocks[0].offset, clocks[0].error) == (0, 0)
    for clock, apart in zip(clocks, APART, strict=True):
        assert abs(clock.offset - apart) <= clock.error
    assert len({(clock.origin, clock.run) for clock in clocks}) == 1
    assert before < clocks[0].origin < after
    assert 0 < min(clock.error for clock in clocks[1:]) < after - before


def test_each_comparison_has_a_number_of_its_own() -> None:
    def twice(session: Session) -> tuple[Clock, Clock]:
        return compare(session), compare(session)

    ((first, second),) = run_ranks(1, twice)
    assert first.run != second.run
