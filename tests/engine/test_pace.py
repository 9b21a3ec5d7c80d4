from __future__ import annotations

from sparse_ring.engine.pace import FIRST_BYTES_PER_SECOND, WORTH_SECONDS, Pace


def test_what_is_worth_a_round_depends_on_the_link() -> None:
    pace = Pace(4)
    worth = round(WORTH_SECONDS * FIRST_BYTES_PER_SECOND / 2)
    assert not pace.worth_sending(worth - 1)
    assert pace.worth_sending(worth)
    for _ in range(15):
        pace.note(200_000, 0.02)
    assert pace.worth_sending(20_000)
    assert not pace.worth_sending(19_999)
    # One that was fast only because buffers took it, one that waited for a late rank.
    pace.note(1_000_000, 0.001)
    pace.note(1_000_000, 1.0)
    assert pace.bytes_per_second == 1e7
    for _ in range(15):
        pace.note(1_000_000, 0.01)
    assert pace.bytes_per_second == 1e8


def test_latencies_say_nothing_of_the_rate() -> None:
    pace = Pace(2)
    pace.note(100, 0.01)
    pace.note(1 << 20, 0.0)
    assert pace.bytes_per_second == FIRST_BYTES_PER_SECOND


def test_one_rank_sends_nothing() -> None:
    assert not Pace(1).worth_sending(1 << 30)
