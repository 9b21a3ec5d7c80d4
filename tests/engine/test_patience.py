from __future__ import annotations

import time

import pytest

from sparse_ring.engine.patience import LONGEST_SLEEP_SECONDS, SHORTEST_SLEEP_SECONDS, Patience, pause_seconds


def test_sleeps_grow_within_their_bounds() -> None:
    assert [pause_seconds(0.0), pause_seconds(0.001), pause_seconds(10.0)] == [
        SHORTEST_SLEEP_SECONDS,
        0.000125,
        LONGEST_SLEEP_SECONDS,
    ]


def test_who_only_waits_looks_more_often() -> None:
    assert pause_seconds(0.00005, hurry=True) == 0.0
    assert pause_seconds(0.0032, hurry=True) == 0.0001
    assert pause_seconds(10.0, hurry=True) == LONGEST_SLEEP_SECONDS


def test_on_a_crowded_core_it_is_patient_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    sleeps: list[float] = []
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", sleeps.append)
    patience = Patience()

    def pause(after: float, waited: float) -> float:
        """Seconds slept."""
        sleeps.clear()
        clock[0] += after
        patience.pause(waited, hurry=True)
        return sum(sleeps)

    assert pause(0.0, 10e-6) == 0.0
    assert pause(5e-6, 15e-6) == 0.0
    # Another wait, later.
    assert pause(1.0, 10e-6) == 0.0
    # Somebody else had the core between two looks.
    assert pause(300e-6, 50e-6) == SHORTEST_SLEEP_SECONDS
    assert pause(25e-6, 0.0016) == pytest.approx(0.0002)
    assert pause(0.2, 10e-6) == 0.0
    # And after a sleep of 100 us that took 400.
    assert pause(0.0, 0.0032) == pytest.approx(0.0001)
    assert pause(400e-6, 0.0036) == pytest.approx(0.00045)


def test_who_does_not_hurry_may_sleep_longer() -> None:
    assert pause_seconds(10.0, False, 0.004) == 0.004
