"""A supervisor's way to the launcher: the Unix socket of its host, or TCP connections to another one."""

from __future__ import annotations

import fcntl
import os
import selectors
import shutil
import socket
import struct
import tempfile
import termios
import time
from abc import ABC, abstractmethod

from .control import ACCEPTED, NONCE_BYTES, ROLES, Proof, Report, send_hello, watch_peer

CONNECT_SECONDS = 30.0
PIECE_BYTES = 1 << 16


class Uplink(ABC):
    """``channel`` carries reports and orders; ``member_file`` is the rank's to write into; ``host`` names this one where
    there are several.
    """

    channel: socket.socket
    member_file: str
    host: str = ""

    @abstractmethod
    def hello(self, report: Report, stdout: int, stderr: int, selector: selectors.BaseSelector) -> None:
        """Send the first report and hand over the read ends of the rank's output, which are closed here in the end."""

    def output_is_through(self) -> bool:
        """Return whether all that the rank has written so far is on its way."""
        return True

    def close(self) -> None:
        """Close what this process has of it; another one that has it as well goes on."""
        self.channel.close()

    @abstractmethod
    def clear(self) -> None:
        """Remove what lies on this host's disk and nobody needs any more."""


class UnixUplink(Uplink):
    """The launcher's socket at ``path``; it takes the pipes themselves."""

    def __init__(self, path: str, rank: int) -> None:
        self._path = path
        self.channel = socket.socket(socket.AF_UNIX)
        self.channel.connect(path)
        self.member_file = f"{path}.{rank}"

    def hello(self, report: Report, stdout: int, stderr: int, selector: selectors.BaseSelector) -> None:
        """See :meth:`Uplink.hello`."""
        try:
            send_hello(self.channel, report, stdout, stderr)
        finally:
            os.close(stdout)
            os.close(stderr)

    def clear(self) -> None:
        """See :meth:`Uplink.clear`: the launcher does it, unless it was killed."""
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(self._path)
            except ConnectionRefusedError:
                shutil.rmtree(os.path.dirname(self._path), ignore_errors=True)
            except OSError:
                return


class TcpUplink(Uplink):
    """Three connections to ``address`` (``HOST:PORT``), opened with the job's ``secret``.

    Raises OSError where the launcher cannot be reached or does not accept this rank.
    """

    def __init__(self, address: str, secret: str, rank: int) -> None:
        host, _, port = address.rpartition(":")
        connections = {role: _open(host, int(port), role, secret, rank) for role in ROLES}
        self.channel = connections["control"]
        watch_peer(self.channel)
        self._outputs = connections["stdout"], connections["stderr"]
        self._forwards: list[Forward] = []
        self._folder = tempfile.mkdtemp(prefix="sparse-ring-")
        self.member_file = os.path.join(self._folder, str(rank))
        self.host = socket.gethostname()

    def hello(self, report: Report, stdout: int, stderr: int, selector: selectors.BaseSelector) -> None:
        """See :meth:`Uplink.hello`."""
        for pipe, connection in zip((stdout, stderr), self._outputs, strict=True):
            self._forwards.append(Forward(selector, pipe, connection))
        self.channel.sendall(report.encode())

    def output_is_through(self) -> bool:
        """See :meth:`Uplink.output_is_through`."""
        return all(forward.idle for forward in self._forwards)

    def close(self) -> None:
        """See :meth:`Uplink.close`."""
        super().close()
        for connection in self._outputs:
            connection.close()

    def clear(self) -> None:
        """See :meth:`Uplink.clear`."""
        shutil.rmtree(self._folder, ignore_errors=True)


class Forward:
    """Carries what comes out of ``pipe`` into ``connection`` as ``selector`` finds them ready; owns both."""

    def __init__(self, selector: selectors.BaseSelector, pipe: int, connection: socket.socket) -> None:
        self._selector, self._pipe, self._connection = selector, pipe, connection
        self._rest = b""
        self._open = True
        connection.setblocking(False)
        selector.register(pipe, selectors.EVENT_READ, self._take)

    @property
    def idle(self) -> bool:
        """Whether nothing waits in the pipe or here."""
        if not self._open:
            return True
        waiting = struct.unpack("i", fcntl.ioctl(self._pipe, termios.FIONREAD, b"\0\0\0\0"))[0]
        return not self._rest and waiting == 0

    def _take(self) -> None:
        self._rest = os.read(self._pipe, PIECE_BYTES)
        if not self._rest:
            self._close(self._pipe)
            return
        self._selector.unregister(self._pipe)
        self._selector.register(self._connection, selectors.EVENT_WRITE, self._give)
        self._give()

    def _give(self) -> None:
        try:
            self._rest = self._rest[self._connection.send(self._rest) :]
        except BlockingIOError:
            return
        except OSError:
            # The launcher is gone. The rank finds a closed pipe, as it would on the launcher's own host.
            self._rest = b""
            self._close(self._connection)
            return
        if not self._rest:
            self._selector.unregister(self._connection)
            self._selector.register(self._pipe, selectors.EVENT_READ, self._take)

    def _close(self, registered: int | socket.socket) -> None:
        self._selector.unregister(registered)
        self._open = False
        os.close(self._pipe)
        self._connection.close()


def _open(host: str, port: int, role: str, secret: str, rank: int) -> socket.socket:
    connection = socket.create_connection((host, port), CONNECT_SECONDS)
    nonce = _receive(connection, NONCE_BYTES)
    connection.sendall(Proof(role, rank, time.monotonic()).encode(secret, nonce))
    if _receive(connection, len(ACCEPTED)) != ACCEPTED:
        raise ConnectionRefusedError(f"what answers at {host}:{port} is not the launcher of this job")
    connection.settimeout(None)
    return connection


def _receive(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            raise ConnectionRefusedError("the launcher closed the connection, so this rank is not one of its job")
        data += piece
    return data
