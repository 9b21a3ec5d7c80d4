"""Operations and goodbyes that wait too long for other ranks."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from sparse_ring.config import Config
from sparse_ring.engine.engine import Engine
from sparse_ring.errors import SparseRingError, StallError
from tests.engine.ranks import Gather, run_ranks


class Messages(logging.Handler):
    """Collects warnings and lets a test wait for one."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.arrived = threading.Condition()

    def emit(self, record: logging.LogRecord) -> None:
        with self.arrived:
            self.texts.append(record.getMessage())
            self.arrived.notify_all()

    def wait_for(self, pattern: str) -> None:
        with self.arrived:
            assert self.arrived.wait_for(lambda: any(re.search(pattern, text) for text in self.texts), 60), self.texts


@pytest.fixture
def messages() -> Iterator[Messages]:
    logger, handler = logging.getLogger("sparse_ring.engine"), Messages()
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def test_a_stalled_tensor_is_reported_with_the_missing_ranks(messages: Messages) -> None:
    def program(engine: Engine) -> list[int]:
        if engine.rank == 1:
            messages.wait_for(
                r"^Rank 0: tensor 'slow' has waited \d+ s for ranks \[1\], which have not submitted it\.$"
            )
        values: list[int] = engine.submit(Gather("slow", 3)).wait()[0]
        return values

    config = Config(stall_check_time_seconds=0.02, stall_shutdown_time_seconds=0.0)
    assert run_ranks(3, program, config) == [[3, 3, 3]] * 3


def test_a_rank_that_takes_part_but_skips_a_tensor_is_reported(messages: Messages) -> None:
    def program(engine: Engine) -> Any:
        if engine.rank < 2:
            handle = engine.submit(Gather("skipped", 1))
        engine.submit(Gather("common", 1)).wait()
        if engine.rank == 2:
            messages.wait_for(
                r"^Rank 1: tensor 'skipped' has waited \d+ s for ranks \[2\], which have not submitted it"
            )
            handle = engine.submit(Gather("skipped", 1))
        return handle.wait()[0]

    assert run_ranks(3, program, Config(stall_check_time_seconds=0.05)) == [[1, 1, 1]] * 3


def test_a_stall_past_the_deadline_raises_and_ends_the_engine() -> None:
    raised = threading.Barrier(2)

    def program(engine: Engine) -> Any:
        if engine.rank == 1:
            raised.wait(60)
            return None
        handle = engine.submit(Gather("w"))
        with pytest.raises(StallError, match=r"^Tensor 'w': rank 1 missing after") as info:
            handle.wait()
        with pytest.raises(SparseRingError, match=r"^Tensor 'v': the engine of rank 0 has stopped: Tensor 'w': rank 1"):
            engine.submit(Gather("v")).wait()
        raised.wait(60)
        return info.value.what, info.value.ranks

    config = Config(stall_check_disable=True, stall_shutdown_time_seconds=0.05)
    assert run_ranks(2, program, config) == [("Tensor 'w'", (1,)), None]


def test_every_overdue_tensor_gets_its_own_stall_error() -> None:
    raised = threading.Barrier(2)

    def program(engine: Engine) -> Any:
        errors = []
        if engine.rank == 0:
            for handle in engine.submit_all([Gather(name) for name in "abc"]):
                with pytest.raises(StallError) as info:
                    handle.wait()
                errors.append((info.value.what, info.value.ranks))
        raised.wait(60)
        return errors

    config = Config(stall_check_disable=True, stall_shutdown_time_seconds=0.05)
    assert run_ranks(2, program, config)[0] == [(f"Tensor '{name}'", (1,)) for name in "abc"]


def test_a_goodbye_that_nobody_answers_is_given_up(messages: Messages) -> None:
    left = threading.Event()

    def program(engine: Engine) -> None:
        if engine.rank == 0:
            engine.close()
            left.set()
        assert left.wait(60)

    run_ranks(2, program, Config(stall_check_time_seconds=0.02, stall_shutdown_time_seconds=0.1))
    messages.wait_for(r"^Rank 0: shutdown has waited \d+ s for ranks \[1\] to shut down or submit a tensor\.$")
    messages.wait_for(r"^Rank 0 leaves without the others' goodbye\. Shutdown: rank 1 missing")
