"""What the launcher knows of each rank, and which of them failed first."""

from __future__ import annotations

import re
import signal
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from .control import Report
from .lastwords import LastWords
from .processes import describe, exit_code

_ABORT = re.compile(rb"Abort\((\d+)\) on node \d+ \(rank \d+ in comm")
_LOST = re.compile(r"RankLostError: .*: rank (\d+) has shut down")


@dataclass(slots=True)
class RankState:
    """One rank: its open socket and what was reported over it.

    ``outputs`` are the descriptors of its stdout and stderr until they are read; ``clock_offset`` is added to the times
    of its reports, which then are this host's. ``abort_code`` is what it gave to MPI_Abort, seen at ``aborted_at``;
    ``lost_at`` is when the socket closed by itself (both in seconds of ``time.monotonic``). ``pending`` holds an unfinished
    report, ``last_words`` the end of its stderr.
    """

    channel: socket.socket | None = None
    outputs: list[int] = field(default_factory=list)
    clock_offset: float = 0.0
    hello: Report | None = None
    orphaned: Report | None = None
    ended: Report | None = None
    clean: bool = False
    abort_code: int | None = None
    aborted_at: float = 0.0
    lost_at: float | None = None
    pending: bytes = b""
    last_words: LastWords = field(default_factory=LastWords)

    @property
    def name(self) -> str:
        """The rank, and its host where there are several."""
        if self.hello is None:
            return "a rank"
        return f"rank {self.hello.rank}" + (f" on {self.hello.host}" if self.hello.host else "")

    @property
    def running(self) -> bool:
        """Whether the rank's command may still run."""
        return self.ended is None and self.lost_at is None

    @property
    def over(self) -> bool:
        """Whether nothing of the rank runs any more, as far as can be known."""
        return self.clean or self.lost_at is not None

    def notice(self, line: bytes) -> None:
        """Look at a line of the rank: MPI libraries say there that this rank has called MPI_Abort."""
        found = _ABORT.match(line)
        if found and self.abort_code is None:
            self.abort_code, self.aborted_at = int(found[1]) & 0xFF or 1, time.monotonic()

    def take(self, report: Report) -> None:
        """File a report under its event."""
        report = replace(report, time=report.time + self.clock_offset)
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
    """A rank's bad end: ``text`` for people, ``code`` for the shell, ``time`` in seconds, ``rank``.

    ``own`` is False where MPI or somebody else ended the rank from outside: such an end is named only where no rank
    ended badly by itself. ``lost`` is the rank that had shut down while this one waited for it, which made it fail: a
    failure of that rank, or any other that was not such a consequence, is named first.
    """

    text: str
    code: int
    time: float
    rank: int
    own: bool = True
    lost: int | None = None


def failure_of(state: RankState) -> Failure | None:
    """Return how this rank failed, None where it did not (yet) or was told to end."""
    if state.hello is None:
        return None
    name, rank = state.name, state.hello.rank
    ended = state.ended
    gone = state.orphaned is not None or (ended is None and state.lost_at is not None)
    if state.abort_code is not None and gone:
        text = f"{name} ended with exit code {state.abort_code} (MPI_Abort)"
        return Failure(text, state.abort_code, state.aborted_at, rank)
    if ended is not None and not ended.ordered:
        return _failure_at_end(state, state.hello, ended)
    if ended is None and state.lost_at is not None:
        return Failure(f"{name} {_loss(state.hello)}", exit_code(-signal.SIGKILL), state.lost_at, rank)
    if state.orphaned is not None:
        return Failure(f"{name} was ended by MPI or from outside", 1, state.orphaned.time, rank, own=False)
    return None


def _failure_at_end(state: RankState, hello: Report, ended: Report) -> Failure | None:
    """Judge the end of a command that nobody had ordered."""
    if ended.status == 0 and ended.member:
        text = f"{state.name} ended with exit code 0, but without shutdown()"
        return Failure(text, 1, ended.time, hello.rank)
    if ended.status == 0:
        return None
    text = f"{state.name}: {hello.reason}" if hello.reason else f"{state.name} {describe(ended.status)}"
    text += f" ({ended.reason})" if ended.reason else ""
    lost = _LOST.match(ended.reason)
    return Failure(text, exit_code(ended.status), ended.time, hello.rank, lost=int(lost[1]) if lost else None)


def _loss(hello: Report) -> str:
    if hello.host:
        return "was lost: its host, the network to it or the process that watches it has ended"
    return "was ended, as the process that watches it was killed"


def first_failure(states: Iterable[RankState]) -> Failure | None:
    """Return the earliest failure: those that ranks brought about themselves first, among them consequences last.

    Where only consequences are known, the text names the rank that was waited for as well.
    """
    known = list(states)
    failures = [failure for failure in map(failure_of, known) if failure is not None]
    first = min(failures, key=lambda one: (not one.own, one.lost is not None, one.time), default=None)
    if first is None or first.lost is None:
        return first
    cause = next((state for state in known if state.hello is not None and state.hello.rank == first.lost), None)
    if cause is None:
        return first
    ended = cause.ended
    how = f"it {describe(ended.status)}" if ended is not None and not ended.ordered else "it still runs"
    return replace(first, text=f"{cause.name} left the job while others waited for it ({how}); {first.text}")
