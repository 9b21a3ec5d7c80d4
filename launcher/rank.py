"""The stub that MPI starts for each rank: ``python -m sparse_ring.launcher.rank --socket PATH -- command…``.

On several hosts ``--connect HOST:PORT`` stands in place of ``--socket PATH``.

It forks: the parent stands where MPI expects its process, the child (the supervisor, in a session of its own) runs the
command and reports to the launcher. MPI's PMI descriptors and variables pass through both unchanged. MPI cleans up with
SIGKILL at once; as that hits only the parent, the supervisor still learns the command's exit code and can end its whole
tree in order. See ``sparse_ring/launcher/__init__.py`` for the picture.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from typing import Any

from sparse_ring.config import process_environment

from .control import KILL, SECRET_VARIABLE, TERM_SECONDS, Report
from .mpi import rank_of
from .processes import adopt_orphans, descendants, dying_with, exit_code, send
from .uplink import TcpUplink, UnixUplink, Uplink

LEFTOVER_SECONDS = 0.5
"""How long the helpers of a command that has ended may take to end by themselves."""
NOT_STARTED = 127
REASON_CHARACTERS = 400
OUTPUT_SECONDS = 5.0
"""How long the output of a rank that is over may take on its way to another host."""


class Supervisor:
    """Runs one rank's command, reports how it ended and sees that nothing of it is left."""

    def __init__(self, rank: int, uplink: Uplink, stub_alive: int) -> None:
        self._rank, self._uplink, self._stub_alive = rank, uplink, stub_alive
        self._channel = uplink.channel
        self._pid = 0
        self._status: int | None = None
        self._ordered = self._released = self._alone = False
        self._term_at: float | None = None
        self._kill_at: float | None = None
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._channel, selectors.EVENT_READ, self._hear)
        self._selector.register(stub_alive, selectors.EVENT_READ, self._lose_stub)
        reader, writer = socket.socketpair()
        for end in (reader, writer):
            end.setblocking(False)
        self._wake = (reader, writer)
        self._selector.register(reader, selectors.EVENT_READ, lambda: reader.recv(4096))
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(signum, lambda *_: self._order())

    def run(self, command: list[str]) -> int:
        """Run ``command`` to its end; returns the exit code that the stub passes on to MPI."""
        self._start(command)
        while self._status is None:
            self._step()
        member, reason = self._membership()
        self._say("ended", status=self._status, ordered=self._ordered, member=member, reason=reason)
        if self._term_at is None and self._kill_at is None:
            self._term_at = time.monotonic() + LEFTOVER_SECONDS
        while descendants(os.getpid()):
            self._step()
        self._say("clean")
        while not self._released:
            self._step()
        deadline = time.monotonic() + OUTPUT_SECONDS
        while not self._uplink.output_is_through() and time.monotonic() < deadline:
            self._step()
        return exit_code(self._status)

    def _start(self, command: list[str]) -> None:
        outputs = [os.pipe(), os.pipe()]
        reason = ""
        try:
            # close_fds=False lets MPI's descriptors through; those made here are not inheritable.
            # Kept, as a Popen that is collected reaps its child, whose status would be lost.
            self._process = subprocess.Popen(
                command,
                # MPI leaves the input of the other ranks open for ever.
                stdin=None if self._rank == 0 else subprocess.DEVNULL,
                stdout=outputs[0][1],
                stderr=outputs[1][1],
                close_fds=False,
                start_new_session=True,
                preexec_fn=dying_with(os.getpid()),
                env=self._environment(),
            )
            self._pid = self._process.pid
        except OSError as error:
            self._status = NOT_STARTED
            reason = f"{command[0]} could not be started: {error.strerror}"
        try:
            self._uplink.hello(self._report("hello", reason=reason), outputs[0][0], outputs[1][0], self._selector)
        except OSError:
            self._leave_alone()
        # MPI waits for the end of its own pipes, which must come with the stub's; what this process says is the rank's.
        os.dup2(outputs[1][1], 1)
        os.dup2(outputs[1][1], 2)
        for _, writer in outputs:
            os.close(writer)

    def _environment(self) -> dict[str, str]:
        environment = process_environment() | {"SPARSE_RING_MEMBER_FILE": self._uplink.member_file}
        environment.pop(SECRET_VARIABLE, None)
        return environment

    def _membership(self) -> tuple[bool, str]:
        """Return whether the rank has not left its job, and the first line of its uncaught exception."""
        try:
            with open(self._uplink.member_file) as file:
                return True, file.readline(REASON_CHARACTERS).strip()
        except OSError:
            return False, ""

    def _step(self) -> None:
        """Wait for something to happen, at most 0.1 s while a deadline is open, and act on it."""
        for key, _ in self._selector.select(None if self._term_at is None and self._kill_at is None else 0.1):
            key.data()
        self._reap()
        now = time.monotonic()
        if self._kill_at is not None and now >= self._kill_at:
            send(descendants(os.getpid()), signal.SIGKILL)
        elif self._term_at is not None and now >= self._term_at:
            self._ordered = self._ordered or self._status is None
            self._term_at, self._kill_at = None, now + TERM_SECONDS
            send(descendants(os.getpid()), signal.SIGTERM)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._pid:
                self._status = os.waitstatus_to_exitcode(status)

    def _order(self) -> None:
        """End the command: SIGTERM at the next step, SIGKILL later, unless that is under way."""
        if self._kill_at is None:
            self._term_at = time.monotonic()

    def _kill(self) -> None:
        """SIGKILL the command's tree from the next step on."""
        self._ordered = self._ordered or self._status is None
        self._kill_at = time.monotonic()

    def _hear(self) -> None:
        try:
            data = self._channel.recv(64)
        except OSError:
            data = b""
        if not data:
            self._leave_alone()
        elif KILL in data:
            self._kill()
        else:
            self._order()

    def _leave_alone(self) -> None:
        """The launcher is gone, or has released this rank: nobody is left to report to."""
        if not self._alone:
            self._alone = self._released = True
            self._selector.unregister(self._channel)
            self._order()

    def _lose_stub(self) -> None:
        """MPI has ended the stub, so the job is over at once: this command may be the one that called MPI_Abort."""
        self._selector.unregister(self._stub_alive)
        self._reap()
        if self._status is None:
            # First of all: MPI_Abort is not meant to return, and has in the rank that called it.
            send([self._pid], signal.SIGKILL)
        self._kill()
        self._say("orphaned")

    def _say(self, event: str, **details: Any) -> None:
        if self._alone:
            return
        try:
            self._channel.sendall(self._report(event, **details).encode())
        except OSError:
            self._leave_alone()

    def _report(self, event: str, **details: Any) -> Report:
        return Report(
            event=event, rank=self._rank, pid=self._pid, time=time.monotonic(), host=self._uplink.host, **details
        )


def connect(kind: str, where: str, rank: int) -> Uplink:
    """Connect to the launcher as the stub's arguments say. Raises OSError where it cannot be reached."""
    if kind == "--socket":
        return UnixUplink(where, rank)
    return TcpUplink(where, process_environment().get(SECRET_VARIABLE, ""), rank)


def main() -> None:
    """Fork the supervisor and stand in its place for MPI. Arguments: ``--socket PATH -- command…``."""
    kind, where, _, *command = sys.argv[1:]
    rank = rank_of(process_environment())
    if rank is None:
        sys.exit("sparse-ring-run: this MPI does not tell its processes their rank (PMI_RANK, PMIX_RANK).")
    try:
        uplink = connect(kind, where, rank)
    except OSError as error:
        sys.exit(
            f"sparse-ring-run: rank {rank} on {socket.gethostname()} cannot report to the launcher at {where}: {error}. "
            f"Choose another way with --network-interface."
        )
    # Where MPI's daemon is killed, not every MPI notices; so the stub goes with it, and the supervisor sees that.
    dying_with(os.getppid())()
    alive, stub_end = os.pipe()
    supervisor = os.fork()
    if supervisor:
        uplink.close()
        os.close(alive)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        status = os.waitstatus_to_exitcode(os.waitpid(supervisor, 0)[1])
        uplink.clear()
        os._exit(exit_code(status))
    os.close(stub_end)
    os.setsid()
    adopt_orphans()
    status = Supervisor(rank, uplink, alive).run(command)
    uplink.clear()
    os._exit(status)


if __name__ == "__main__":
    main()
