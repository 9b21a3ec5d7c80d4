"""The stub that MPI starts for each rank: ``python -m sparse_ring.launcher.rank --socket PATH -- command…``.

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

from .control import KILL, TERM_SECONDS, Report, send_hello
from .mpi import rank_of
from .processes import adopt_orphans, descendants, dying_with, exit_code, send

LEFTOVER_SECONDS = 0.5
"""How long the helpers of a command that has ended may take to end by themselves."""
NOT_STARTED = 127
REASON_CHARACTERS = 200


class Supervisor:
    """Runs one rank's command, reports how it ended and sees that nothing of it is left."""

    def __init__(self, rank: int, channel: socket.socket, stub_alive: int, member_file: str) -> None:
        self._rank, self._channel, self._stub_alive = rank, channel, stub_alive
        self._member_file = member_file
        self._pid = 0
        self._status: int | None = None
        self._ordered = self._released = self._alone = False
        self._term_at: float | None = None
        self._kill_at: float | None = None
        self._selector = selectors.DefaultSelector()
        self._selector.register(channel, selectors.EVENT_READ, self._hear)
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
                env=process_environment() | {"SPARSE_RING_MEMBER_FILE": self._member_file},
            )
            self._pid = self._process.pid
        except OSError as error:
            self._status = NOT_STARTED
            reason = f"{command[0]} could not be started: {error.strerror}"
        hello = Report(event="hello", rank=self._rank, pid=self._pid, time=time.monotonic(), reason=reason)
        try:
            send_hello(self._channel, hello, outputs[0][0], outputs[1][0])
        except OSError:
            self._leave_alone()
        # MPI waits for the end of its own pipes, which must come with the stub's; what this process says is the rank's.
        os.dup2(outputs[1][1], 1)
        os.dup2(outputs[1][1], 2)
        for reader, writer in outputs:
            os.close(reader)
            os.close(writer)

    def _membership(self) -> tuple[bool, str]:
        """Return whether the rank has not left its job, and the first line of its uncaught exception."""
        try:
            with open(self._member_file) as file:
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
        report = Report(event=event, rank=self._rank, pid=self._pid, time=time.monotonic(), **details)
        try:
            self._channel.sendall(report.encode())
        except OSError:
            self._leave_alone()


def main() -> None:
    """Fork the supervisor and stand in its place for MPI. Arguments: ``--socket PATH -- command…``."""
    path, command = sys.argv[2], sys.argv[4:]
    rank = rank_of(process_environment())
    if rank is None:
        sys.exit("sparse-ring-run: this MPI does not tell its processes their rank (PMI_RANK, PMIX_RANK).")
    channel = socket.socket(socket.AF_UNIX)
    channel.connect(path)
    alive, stub_end = os.pipe()
    supervisor = os.fork()
    if supervisor:
        channel.close()
        os.close(alive)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os._exit(exit_code(os.waitstatus_to_exitcode(os.waitpid(supervisor, 0)[1])))
    os.close(stub_end)
    os.setsid()
    adopt_orphans()
    os._exit(Supervisor(rank, channel, alive, f"{path}.{rank}").run(command))


if __name__ == "__main__":
    main()
