"""The launcher's end of every connection: mpiexec, the supervisors' sockets and the ranks' output pipes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections import deque
from functools import partial

from .base import Mpi, Start, complete
from .control import decode, receive
from .files import OutputFiles, Reader
from .listen import Listener
from .loop import Loop
from .output import Lines, MpiLines, Screen
from .processes import describe, dying_with
from .ranks import RankState

MPI_LINES = 200
READ_BYTES = 1 << 16


class Wires:
    """Starts mpiexec, takes in what comes from it and from the ranks, and carries orders to the supervisors.

    ``states`` has an entry for every supervisor that has connected to ``listener``, and ``taken_bytes`` counts what was
    read of the output. The ranks' output is copied into ``files`` where there are some. mpiexec's own output is kept for
    :meth:`show_mpi_text`, or shown as it comes where ``verbose``.
    """

    def __init__(
        self, loop: Loop, screen: Screen, listener: Listener, *, files: OutputFiles | None = None, verbose: bool
    ) -> None:
        self.states: list[RankState] = []
        self.taken_bytes = 0
        self._loop, self._screen, self._listener, self._files, self._verbose = loop, screen, listener, files, verbose
        self._readers: dict[int, Reader] = {}
        self._mpi_text: deque[bytes] = deque(maxlen=MPI_LINES)
        self._standing_order = b""

    def start(self, start: Start, mpi: Mpi, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        """Listen, and start mpiexec with a stub for each rank."""
        self._listener.open(self._loop, start.ranks, self._join)
        environment = environment | self._listener.variables()
        line = mpi.command(complete(start, self._listener.arguments(), environment))
        if self._verbose:
            self._screen.say(f"{mpi.name}: {' '.join(line)}")
        # A terminal stays with the shell: MPI hands its input to rank 0, and would take it from a background job, too.
        stdin = subprocess.DEVNULL if sys.stdin is None or sys.stdin.isatty() else None
        self._mpiexec = subprocess.Popen(
            line, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, start_new_session=True,
            preexec_fn=dying_with(os.getpid()),
        )  # fmt: skip
        for stream in (self._mpiexec.stdout, self._mpiexec.stderr):
            assert stream is not None
            self._read(os.dup(stream.fileno()), MpiLines(self._screen, self._mpi_text, verbose=self._verbose))
            stream.close()
        return self._mpiexec

    @property
    def reading(self) -> bool:
        """Whether an output pipe is still open."""
        return bool(self._readers)

    def order(self, order: bytes) -> None:
        """Send an order to every supervisor, also to those that connect later."""
        self._standing_order = order
        for state in self.states:
            self._send(state, order)

    def release(self, *, only_clean: bool = False) -> None:
        """Let the supervisors go (or those whose ranks are over), and with the last of them mpiexec."""
        for state in self.states:
            if state.clean or not only_clean:
                self._close_channel(state)

    def show_mpi_text(self) -> None:
        """Write what mpiexec itself has said, unless it was shown as it came."""
        self._loop.step(0.1)
        for text in () if self._verbose else self._mpi_text:
            self._screen.line(b"[mpi] " + text, self._screen.stderr)

    def close(self) -> None:
        """Close everything and write the last unfinished lines."""
        self.release()
        self._listener.close()
        for descriptor in [one for state in self.states for one in state.outputs]:
            os.close(descriptor)
        for descriptor in list(self._readers):
            self._end_reading(descriptor)
        self._screen.end_progress()
        self._mpiexec.wait()

    def _join(self, channel: socket.socket, outputs: list[int], clock_offset: float) -> None:
        state = RankState(channel, outputs, clock_offset)
        self.states.append(state)
        self._loop.add(channel, partial(self._hear, state, channel))
        if self._standing_order:
            self._send(state, self._standing_order)

    def _hear(self, state: RankState, channel: socket.socket) -> None:
        try:
            data, descriptors = receive(channel)
        except OSError:
            data, descriptors = b"", []
        state.outputs += descriptors
        if not data:
            state.lost_at = None if state.clean else time.monotonic()
            self._close_channel(state)
            return
        *lines, state.pending = (state.pending + data).split(b"\n")
        for line in lines:
            state.take(decode(line))
            self._tell(state)
        if state.hello is not None and state.outputs:
            self._read_rank(state, state.hello.rank)

    def _read_rank(self, state: RankState, rank: int) -> None:
        def notice(line: bytes) -> None:
            state.notice(line)
            state.last_words.notice(line)

        label = f"rank {rank}"
        stdout = Lines(self._screen, self._screen.stdout, label, rank, notice=state.notice)
        stderr = Lines(self._screen, self._screen.stderr, label, rank, notice=notice)
        for descriptor, stream, reader in zip(state.outputs, ("stdout", "stderr"), (stdout, stderr), strict=True):
            self._read(descriptor, self._files.copying(rank, stream, reader) if self._files else reader)
        state.outputs = []

    def _tell(self, state: RankState) -> None:
        """Say every start and end where ``verbose``."""
        if not self._verbose or state.hello is None:
            return
        if state.ended is None and state.orphaned is None:
            self._screen.say(f"{state.name} is process {state.hello.pid}")
        elif state.ended is not None and not state.clean:
            self._screen.say(f"{state.name} {describe(state.ended.status)}")

    def _send(self, state: RankState, order: bytes) -> None:
        if state.channel is not None:
            try:
                state.channel.sendall(order)
            except OSError:
                # It has just ended; its closed socket says so.
                return

    def _close_channel(self, state: RankState) -> None:
        if state.channel is not None:
            self._loop.remove(state.channel)
            state.channel.close()
            state.channel = None

    def _read(self, descriptor: int, lines: Reader) -> None:
        os.set_blocking(descriptor, False)
        self._readers[descriptor] = lines
        self._loop.add(descriptor, partial(self._take_output, descriptor))

    def _take_output(self, descriptor: int) -> None:
        try:
            data = os.read(descriptor, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            # The host at the other end is gone; its control socket says so.
            data = b""
        self.taken_bytes += len(data)
        if data:
            self._readers[descriptor].feed(data)
        else:
            self._end_reading(descriptor)

    def _end_reading(self, descriptor: int) -> None:
        self._readers.pop(descriptor).close()
        self._loop.remove(descriptor)
        os.close(descriptor)
