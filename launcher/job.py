"""Starts the ranks, watches them, names the one that failed first and ends the others."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass

from .base import Mpi, Start
from .control import KILL, TERM_SECONDS, TERMINATE
from .files import OutputFiles
from .listen import Listener, TcpListener, UnixListener
from .loop import Loop
from .output import Screen
from .processes import adopt_orphans, descendants, describe, exit_code, send
from .ranks import Failure, RankState, first_failure
from .wires import Wires

NAMING_SECONDS = 0.15
"""How long reports are collected after the first failure, so that the earliest is named, not the fastest reporter."""
ABORT_SECONDS = 0.5
"""The same where MPI ended the stubs, or a rank had waited for another that left, until a cause is known."""
HARD_SECONDS = TERM_SECONDS + 2.0
"""What still runs so long after the order to end is killed from here."""
RELEASE_SECONDS = 5.0
DRAIN_SECONDS = 0.5
"""Output that is still open is read until none has come for so long."""
MOST_DRAIN_SECONDS = 10.0
EARLY_NOTE_SECONDS = 10.0
EARLY_SECONDS = 60.0
"""How long MPI is not told that a rank has ended with exit code 0 while others run. One that has not called MPI_Finalize
leaves them waiting in theirs; MPI then ends the job."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a job is watched.

    address
        IPv4 address to which ranks on other hosts report; empty: all ranks are on this host.
    output_folder
        Where copies of the ranks' output go; empty: nowhere.
    start_timeout
        Seconds until all ranks must have reported (> 0).
    verbose
        Say what is started, and show MPI's own messages.
    """

    address: str = ""
    output_folder: str = ""
    start_timeout: float = 60.0
    verbose: bool = False


class Job:
    """One run of ``start`` under ``mpi``; :meth:`run` returns the exit code for the shell."""

    def __init__(
        self, start: Start, mpi: Mpi, environment: dict[str, str], screen: Screen, settings: Settings | None = None
    ) -> None:
        self._start, self._mpi, self._environment = start, mpi, environment
        self._screen, self._settings = screen, settings or Settings()
        self._loop = Loop()
        self._code: int | None = None
        self._text = ""
        self._first: Failure | None = None
        self._failed_at: float | None = None
        self._ordered_at: float | None = None
        self._released_at: float | None = None
        self._early_at: float | None = None
        self._early: tuple[list[int], list[int]] | None = None
        self._early_let_go = False

    def run(self) -> int:
        """Start, watch and end the job. Signals to the launcher end the ranks; no process outlives this call."""
        before = set(descendants(os.getpid()))
        folder, address = self._settings.output_folder, self._settings.address
        files = OutputFiles(folder, self._screen.say) if folder else None
        adopt_orphans()
        with ExitStack() as stack:
            stack.enter_context(self._loop)
            listener: Listener
            if address:
                listener = TcpListener(address)
            else:
                directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="sparse-ring-"))
                listener = UnixListener(os.path.join(directory, "ranks"))
            self._wires = Wires(self._loop, self._screen, listener, files=files, verbose=self._settings.verbose)
            self._start_timeout_at = time.monotonic() + self._settings.start_timeout
            self._mpiexec = self._wires.start(self._start, self._mpi, self._environment)
            try:
                while not self._finished(time.monotonic()):
                    self._loop.step(0.1)
                    self._decide(time.monotonic())
                self._drain()
            finally:
                send([pid for pid in descendants(os.getpid()) if pid not in before], signal.SIGKILL)
                self._wires.close()
        self._show_last_words()
        return self._code or 0

    def _decide(self, now: float) -> None:
        """Act on what has happened since the last step."""
        if self._screen.broken and self._code is None:
            self._end(now, exit_code(-signal.SIGPIPE), "")
        for signum in self._loop.take_signals():
            if self._ordered_at is None or self._code is None:
                self._end(now, exit_code(-signum), f"{signal.Signals(signum).name}: ending all ranks")
            else:
                self._wires.order(KILL)
        if self._code is None:
            self._look_for_failure(now)
        if self._code is None and now >= self._start_timeout_at:
            self._look_for_ranks(now)
        if self._released_at is None and self._all_over():
            self._released_at = now
            self._wires.release()
        self._watch_early_ends(now)

    def _look_for_failure(self, now: float) -> None:
        failure = first_failure(self._wires.states)
        if failure is None or (not failure.own and len(self._wires.states) < self._start.ranks):
            self._look_at_mpiexec(now)
            return
        self._failed_at = self._failed_at or now
        clear = failure.own and failure.lost is None
        if now - self._failed_at >= (NAMING_SECONDS if clear else ABORT_SECONDS) or self._all_over():
            self._first = failure
            others = any(state.running for state in self._wires.states)
            text = failure.text + ("; ending the other ranks" if others else "")
            if not failure.own and self._early_let_go and self._early is not None:
                text = f"MPI ended the job: ranks {self._early[0]} ended without MPI_Finalize"
            self._end(now, failure.code, text)

    def _look_at_mpiexec(self, now: float) -> None:
        """Name mpiexec where it ended and no rank is known to be the cause, or before all of them were there."""
        status = self._mpiexec.poll()
        if status is None or self._released_at is not None:
            return
        self._failed_at = self._failed_at or now
        if now - self._failed_at >= ABORT_SECONDS:
            self._end(now, exit_code(status) or 1, f"mpiexec {describe(status)}")
            self._wires.show_mpi_text()

    def _look_for_ranks(self, now: float) -> None:
        """End the job where ranks have not reported in time."""
        here = {state.hello.rank for state in self._wires.states if state.hello is not None}
        missing = sorted(set(range(self._start.ranks)) - here)
        if missing:
            text = f"ranks {missing} have not started within --start-timeout {self._settings.start_timeout:g} s"
            self._end(now, 1, f"{text}; see MPI's messages, and whether their hosts can be reached")
            self._wires.show_mpi_text()

    def _show_last_words(self) -> None:
        """Show the traceback of the rank that failed first once more where other output came in between."""
        state = self._state_of(self._first.rank) if self._first is not None else None
        if state is None or not state.last_words.lines:
            return
        rank = self._first.rank if self._first is not None else 0
        prefix = self._screen.prefix(f"rank {rank}", rank, self._screen.stderr)
        self._screen.show_last([*(prefix + line for line in state.last_words.lines), self._screen.spoken(self._text)])

    def _state_of(self, rank: int) -> RankState | None:
        return next((one for one in self._wires.states if one.hello is not None and one.hello.rank == rank), None)

    def _end(self, now: float, code: int, text: str) -> None:
        """Fix the exit code, say why, and order every rank to end."""
        self._code, self._ordered_at, self._text = code, now, text
        if text:
            self._screen.say(text)
        self._wires.order(TERMINATE)
        if len(self._wires.states) < self._start.ranks:
            self._mpiexec.terminate()

    def _all_over(self) -> bool:
        """Whether every rank that will ever report is over."""
        states = self._wires.states
        # While no end has been named, ranks that are missing may still come, or mpiexec's end is to be named.
        complete = len(states) == self._start.ranks or (self._code is not None and self._mpiexec.poll() is not None)
        return complete and all(state.over for state in states)

    def _finished(self, now: float) -> bool:
        if self._ordered_at is not None and now - self._ordered_at >= HARD_SECONDS:
            return True
        if self._released_at is None:
            return False
        return self._mpiexec.poll() is not None or now - self._released_at >= RELEASE_SECONDS

    def _drain(self) -> None:
        """Read what the ranks have left in their pipes."""
        before, since = -1, time.monotonic()
        end = since + MOST_DRAIN_SECONDS
        while self._wires.reading and time.monotonic() < min(since + DRAIN_SECONDS, end):
            if self._wires.taken_bytes != before:
                before, since = self._wires.taken_bytes, time.monotonic()
            self._loop.step(0.05)

    def _watch_early_ends(self, now: float) -> None:
        """Say when some ranks ended long ago while others run, which may wait for them in MPI; later tell MPI."""
        hellos = [(state, state.hello.rank) for state in self._wires.states if state.hello is not None]
        done = sorted(rank for state, rank in hellos if state.ended is not None)
        running = sorted(rank for state, rank in hellos if state.running)
        if self._code is not None or not done or not running:
            return
        self._early_at = self._early_at or now
        if self._early is None and now - self._early_at >= EARLY_NOTE_SECONDS:
            self._early = done, running
            self._screen.say(f"ranks {done} ended {EARLY_NOTE_SECONDS:.0f} s ago, ranks {running} still run")
        if not self._early_let_go and now - self._early_at >= EARLY_SECONDS:
            self._early_let_go = True
            self._wires.release(only_clean=True)
