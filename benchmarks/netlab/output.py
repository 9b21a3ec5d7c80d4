"""What ranks print: kept by rank, and shown as it comes."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import IO, TextIO

# Pipes end with the processes that hold them; a helper outside the hosts' namespaces is not waited for.
LAST_LINES_SECONDS = 2.0


class Output:
    """Lines of ``ranks`` ranks, from as many pipes as it is told to read, also printed where ``show``."""

    def __init__(self, ranks: int, show: bool) -> None:
        self._show = show
        self._lock = threading.Lock()
        self._out: list[list[str]] = [[] for _ in range(ranks)]
        self._errors: list[str] = []
        self._readers: list[threading.Thread] = []

    @property
    def stdout(self) -> list[str]:
        """What each rank has printed so far."""
        with self._lock:
            return ["".join(lines) for lines in self._out]

    @property
    def stderr(self) -> str:
        """What came on stderr so far."""
        with self._lock:
            return "".join(self._errors)

    def read(self, pipe: IO[bytes] | None, take: Callable[[str], None]) -> None:
        """Give each line of a pipe, its end included, to ``take``, on a thread of its own."""
        assert pipe is not None

        def lines() -> None:
            with pipe:
                for line in pipe:
                    take(line.decode(errors="replace"))

        reader = threading.Thread(target=lines, daemon=True)
        self._readers.append(reader)
        reader.start()

    def out(self, rank: int, line: str) -> None:
        """Keep a line of a rank's stdout."""
        self._take(self._out[rank], line, f"[rank {rank}] {line}", sys.stdout)

    def error(self, rank: int | None, line: str) -> None:
        """Keep a line of stderr: a rank's, or one that needs no number in front."""
        numbered = line if rank is None else f"[rank {rank}] {line}"
        self._take(self._errors, numbered, numbered, sys.stderr)

    def close(self) -> None:
        """Wait for the last lines of processes that have ended."""
        for reader in self._readers:
            reader.join(LAST_LINES_SECONDS)

    def expired(self, command: Sequence[str], timeout: float | None) -> subprocess.TimeoutExpired:
        """Return the error that tells that time is up, with what was printed so far."""
        return subprocess.TimeoutExpired(list(command), timeout or 0.0, "".join(self.stdout), self.stderr)

    def _take(self, lines: list[str], line: str, shown: str, stream: TextIO) -> None:
        with self._lock:
            lines.append(line)
            if self._show:
                stream.write(shown)
                stream.flush()
