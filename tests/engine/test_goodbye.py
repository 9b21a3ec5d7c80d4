"""Ranks that leave."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from sparse_ring.engine.engine import Engine
from sparse_ring.errors import RankLostError, SparseRingError
from sparse_ring.transport.threads import ThreadWorld
from tests.engine.ranks import Gather, run_ranks

pytestmark = pytest.mark.faults


def test_a_hundred_sessions_come_and_go() -> None:
    def program(engine: Engine) -> Any:
        return engine.submit(Gather("w", 1)).wait()[0]

    for number in range(100):
        world = ThreadWorld(3)
        if number % 2:
            assert run_ranks(3, program, world=world) == [[1, 1, 1]] * 3
        else:
            assert run_ranks(3, lambda engine: engine.rank, world=world) == [0, 1, 2]
        assert world.unmatched() == 0


def test_those_who_wait_learn_who_left() -> None:
    def program(engine: Engine) -> Any:
        if engine.rank == 2:
            return None
        errors = []
        for name in ("before", "after"):
            with pytest.raises(RankLostError, match=f"^Tensor '{name}': rank 2 has shut down") as info:
                engine.submit(Gather(name)).wait()
            errors.append((info.value.rank, info.value.tensor))
        return errors

    world = ThreadWorld(3)
    expected = [(2, "before"), (2, "after")]
    assert run_ranks(3, program, world=world) == [expected, expected, None]
    assert world.unmatched() == 0


def test_a_request_of_a_rank_that_leaves_is_not_run() -> None:
    left = threading.Event()

    def program(engine: Engine) -> Any:
        if engine.rank == 1:
            handle = engine.submit(Gather("w"))
            engine.close()
            left.set()
            with pytest.raises(
                SparseRingError, match=r"^Tensor 'w': rank 1 shut down before every rank had submitted it"
            ):
                handle.wait()
            return "left"
        other = engine.submit(Gather("other"))
        with pytest.raises(RankLostError, match="Tensor 'other': rank 1"):
            other.wait()
        assert left.wait(60)
        with pytest.raises(RankLostError, match="Tensor 'w': rank 1"):
            engine.submit(Gather("w")).wait()
        return "stayed"

    world = ThreadWorld(2)
    assert run_ranks(2, program, world=world) == ["stayed", "left"]
    assert world.unmatched() == 0
