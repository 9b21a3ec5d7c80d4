"""Processes that wrote down their pids, and what is left of a lab."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.netlab.namespaces import found, is_running

PATIENCE_SECONDS = 60.0
ENDED_SECONDS = 10.0


def wait_for(condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "what the test waits for has not happened"
        time.sleep(0.02)


def pids_in(folder: Path, count: int) -> list[int]:
    """Wait until ``count`` processes have written a file with their pid into the folder, and return these."""

    def written() -> list[str]:
        return [text for path in folder.iterdir() if (text := path.read_text().strip())]

    wait_for(lambda: len(written()) == count)
    return [int(text) for text in written()]


def wait_until_ended(pids: list[int]) -> None:
    wait_for(lambda: not any(is_running(pid) for pid in pids), ENDED_SECONDS)


def labs_of(pid: int) -> list[str]:
    """Names of the labs of which something exists that belongs to a process."""
    return [name for name, owner in found().items() if owner == pid]
