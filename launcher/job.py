"""Starts the ranks, watches them, names the one that failed first and ends the others."""

from __future__ import annotations

import os
import signal
import tempfile
import time

from .control import KILL, TERM_SECONDS, TERMINATE
from .loop import Loop
from .mpi import Mpi
from .output import Screen
from .processes import adopt_orphans, descendants, describe, exit_code, send
from .ranks import first_failure
from .wires import Wires

NAMING_SECONDS = 0.15
"""How long reports are collected after the first failure, so that the earliest is named, not the fastest reporter."""
ABORT_SECONDS = 0.5
"""The same where MPI ended the stubs, until a rank is known to have caused that."""
HARD_SECONDS = TERM_SECONDS + 2.0
"""What still runs so long after the order to end is killed from here."""
RELEASE_SECONDS = 5.0
DRAIN_SECONDS = 0.5
EARLY_NOTE_SECONDS = 10.0
EARLY_SECONDS = 60.0
"""How long MPI is not told that a rank has ended with exit code 0 while others run. One that has not called MPI_Finalize
leaves them waiting in theirs; MPI then ends the job."""


class Job:
    """One run of ``command`` on ``ranks`` ranks under ``mpi``; :meth:`run` returns the exit code for the shell."""

    def __init__(
        self, command: list[str], ranks: int, mpi: Mpi, environment: dict[str, str], screen: Screen, *, verbose: bool
    ) -> None:
        self._command, self._count, self._mpi, self._environment = command, ranks, mpi, environment
        self._screen = screen
        self._loop = Loop()
        self._wires = Wires(self._loop, screen, verbose=verbose)
        self._code: int | None = None
        self._failed_at: float | None = None
        self._ordered_at: float | None = None
        self._released_at: float | None = None
        self._early_at: float | None = None
        self._early: tuple[list[int], list[int]] | None = None
        self._early_let_go = False

    def run(self) -> int:
        """Start, watch and end the job. Signals to the launcher end the ranks; no process outlives this call."""
        before = set(descendants(os.getpid()))
        adopt_orphans()
        with tempfile.TemporaryDirectory(prefix="sparse-ring-") as directory, self._loop:
            try:
                self._mpiexec = self._wires.start(
                    os.path.join(directory, "ranks"), self._command, self._count, self._mpi, self._environment
                )
                while not self._finished(time.monotonic()):
                    self._loop.step(0.1)
                    self._decide(time.monotonic())
                self._drain()
            finally:
                send([pid for pid in descendants(os.getpid()) if pid not in before], signal.SIGKILL)
                self._wires.close()
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
        if self._released_at is None and self._all_over():
            self._released_at = now
            self._wires.release()
        self._watch_early_ends(now)

    def _look_for_failure(self, now: float) -> None:
        failure = first_failure(self._wires.states)
        if failure is None:
            status = self._mpiexec.poll()
            if status is None or self._released_at is not None:
                return
            self._failed_at = self._failed_at or now
            if now - self._failed_at >= ABORT_SECONDS:
                self._end(now, exit_code(status) or 1, f"mpiexec {describe(status)}")
                self._wires.show_mpi_text()
            return
        self._failed_at = self._failed_at or now
        if now - self._failed_at >= (NAMING_SECONDS if failure.own else ABORT_SECONDS) or self._all_over():
            others = any(state.running for state in self._wires.states)
            text = failure.text + ("; ending the other ranks" if others else "")
            if not failure.own and self._early_let_go and self._early is not None:
                text = f"MPI ended the job: ranks {self._early[0]} ended without MPI_Finalize"
            self._end(now, failure.code, text)

    def _end(self, now: float, code: int, text: str) -> None:
        """Fix the exit code, say why, and order every rank to end."""
        self._code, self._ordered_at = code, now
        if text:
            self._screen.say(text)
        self._wires.order(TERMINATE)
        if len(self._wires.states) < self._count:
            self._mpiexec.terminate()

    def _all_over(self) -> bool:
        """Whether every rank that will ever report is over."""
        states = self._wires.states
        complete = len(states) == self._count or self._mpiexec.poll() is not None
        return complete and all(state.over for state in states) and (bool(states) or self._code is not None)

    def _finished(self, now: float) -> bool:
        if self._ordered_at is not None and now - self._ordered_at >= HARD_SECONDS:
            return True
        if self._released_at is None:
            return False
        return self._mpiexec.poll() is not None or now - self._released_at >= RELEASE_SECONDS

    def _drain(self) -> None:
        """Read what the ranks have left in their pipes."""
        deadline = time.monotonic() + DRAIN_SECONDS
        while self._wires.reading and time.monotonic() < deadline:
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
