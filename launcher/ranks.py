"""What the launcher knows of each rank, and which of them failed first."""

from __future__ import annotations

import re
import signal
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass

from .control import Report
from .processes import describe, exit_code

_ABORT = re.compile(rb"Abort\((\d+)\) on node \d+ \(rank \d+ in comm")


@dataclass(slots=True)
class RankState:
    """One rank: its open socket and what was reported over it.

    ``abort_code`` is what it gave to MPI_Abort, seen at ``aborted_at``; ``lost_at`` is when the socket closed by itself
    (both in seconds of ``time.monotonic``). ``pending`` holds an unfinished report.
    """

    channel: socket.socket | None = None
    hello: Report | None = None
    orphaned: Report | None = None
    ended: Report | None = None
    clean: bool = False
    abort_code: int | None = None
    aborted_at: float = 0.0
    lost_at: float | None = None
    pending: bytes = b""

    @property
    def running(self) -> bool:
        """Whether the rank's command may still run."""
        return self.ended is None and self.lost_at is None

    @property
    def over(self) -> bool:
        """Whether nothing of the rank runs any more, as far as can be known."""
        return self.clean or self.lost_at is not None

    def notice(self, line: bytes) -> None:
        """Look at a line of the rank's stderr: MPI libraries say there that this rank has called MPI_Abort."""
        found = _ABORT.match(line)
        if found and self.abort_code is None:
            self.abort_code, self.aborted_at = int(found[1]) & 0xFF or 1, time.monotonic()

    def take(self, report: Report) -> None:
        """File a report under its event."""
        if report.event == "hello":
            self.hello = report
        elif report.event == "orphaned":
            self.orphaned = report
        elif report.event == "ended":
            self.ended = report
        elif report.event == "clean":
            self.clean = True


@dataclass(frozen=True, slots=True)
class Failure:
    """A rank's bad end: ``text`` for people, ``code`` for the shell, ``time`` in seconds.

    ``own`` is False where MPI or somebody else ended the rank from outside: such an end is named only where no rank
    ended badly by itself.
    """

    text: str
    code: int
    time: float
    own: bool


def failure_of(state: RankState) -> Failure | None:
    """Return how this rank failed, None where it did not (yet) or was told to end."""
    if state.hello is None:
        return None
    name = f"rank {state.hello.rank}"
    if state.abort_code is not None and state.orphaned is not None:
        text = f"{name} ended with exit code {state.abort_code} (MPI_Abort)"
        return Failure(text, state.abort_code, state.aborted_at, own=True)
    ended = state.ended
    if ended is not None and not ended.ordered:
        if ended.status == 0 and ended.member:
            return Failure(f"{name} ended with exit code 0, but without shutdown()", 1, ended.time, own=True)
        if ended.status == 0:
            return None
        text = f"{name}: {state.hello.reason}" if state.hello.reason else f"{name} {describe(ended.status)}"
        text += f" ({ended.reason})" if ended.reason else ""
        return Failure(text, exit_code(ended.status), ended.time, own=True)
    if ended is None and state.lost_at is not None:
        text = f"{name} was ended, as the process that watches it was killed"
        return Failure(text, exit_code(-signal.SIGKILL), state.lost_at, own=True)
    if state.orphaned is not None:
        return Failure(f"{name} was ended by MPI or from outside", 1, state.orphaned.time, own=False)
    return None


def first_failure(states: Iterable[RankState]) -> Failure | None:
    """Return the earliest failure, those that ranks brought about themselves before the others."""
    failures = [failure for failure in map(failure_of, states) if failure is not None]
    return min(failures, key=lambda failure: (not failure.own, failure.time), default=None)
