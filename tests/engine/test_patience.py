from __future__ import annotations

from sparse_ring.engine.patience import LONGEST_SLEEP_SECONDS, SHORTEST_SLEEP_SECONDS, pause_seconds


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
