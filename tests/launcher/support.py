"""Runs commands that start ranks, and finds what they leave behind by a marker in their command lines."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

LAUNCHER = [sys.executable, "-m", "sparse_ring.launcher.main"]
MPIEXEC = str(Path(sys.executable).parent / "mpiexec")
PATIENCE_SECONDS = 60.0
ENDED_SECONDS = 10.0


@dataclass(frozen=True)
class Result:
    """How a command ended; texts are decoded."""

    code: int
    stdout: str
    stderr: str


class Run:
    """A command that is running, with a marker by which its processes are found."""

    def __init__(self, command: Sequence[str], marker: str, environment: dict[str, str]) -> None:
        self.marker = marker
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=os.environ | environment, start_new_session=True,
        )  # fmt: skip

    def pids(self, *words: str) -> list[int]:
        """Processes, the first one left out, whose command lines hold the marker and all of ``words``."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == self.process.pid:
                continue
            try:
                line = (entry / "cmdline").read_bytes().decode(errors="replace")
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if self.marker in line and state != "Z" and all(word in line for word in words):
                found.append(int(entry.name))
        return sorted(found)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until ``condition`` holds; fails the test when it does not come about."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, "what the test waits for has not happened"
            time.sleep(0.02)

    def wait_for_file(self, path: Path, count: int = 1) -> list[int]:
        """Wait until ``count`` ranks have written their pid as ``path/RANK`` and return these, by rank."""
        self.wait_for(lambda: len(list(path.glob("[0-9]"))) == count)
        return [int((path / str(rank)).read_text()) for rank in range(count)]

    def end(self) -> Result:
        """Wait for the end and return it."""
        stdout, stderr = self.process.communicate(timeout=PATIENCE_SECONDS)
        return Result(self.process.returncode, stdout, stderr)

    def assert_nothing_left(self) -> None:
        """Fail unless all processes of the command end within the promised time."""
        deadline = time.monotonic() + ENDED_SECONDS
        while left := self.pids():
            assert time.monotonic() < deadline, f"processes {left} were left behind"
            time.sleep(0.02)


class Starter:
    """Starts commands for one test, in a folder of its own, and cleans up after it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs: list[Run] = []

    def start(self, prefix: Sequence[str], script: str, *arguments: str, **environment: str) -> Run:
        """Run ``prefix python script marker folder arguments``; the script finds marker and folder in ``sys.argv``."""
        path = self.folder / "script.py"
        path.write_text(script)
        marker = f"marker-{uuid.uuid4().hex}"
        command = [*prefix, sys.executable, str(path), marker, str(self.folder), *arguments]
        self.runs.append(Run(command, marker, environment))
        return self.runs[-1]

    def launch(self, ranks: int, script: str, *arguments: str, options: Sequence[str] = (), **environment: str) -> Run:
        """The same under ``sparse-ring-run -np ranks``."""
        return self.start([*LAUNCHER, "-np", str(ranks), *options], script, *arguments, **environment)


@pytest.fixture
def starter(tmp_path: Path) -> Iterator[Starter]:
    result = Starter(tmp_path)
    yield result
    for run in result.runs:
        for pid in [*run.pids(), *([run.process.pid] if run.process.poll() is None else [])]:
            os.kill(pid, signal.SIGKILL)
        run.process.communicate()
