from __future__ import annotations

import os
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
    assert pause_seconds(0.0001, hurry=True) == 0.0
    assert pause_seconds(0.0032, hurry=True) == 0.0001
    assert pause_seconds(10.0, hurry=True) == LONGEST_SLEEP_SECONDS


def test_on_a_crowded_core_it_sleeps_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: done.append("sleep"))

    def give_way() -> None:
        done.append("give way")
        clock[0] += 0.003

    monkeypatch.setattr(os, "sched_yield", give_way)
    patience = Patience()
    for _ in range(3):
        patience.pause(0.0, hurry=True)
    clock[0] += 1.0
    patience.pause(0.0, hurry=True)
    assert done == ["give way", "sleep", "sleep", "give way"]
