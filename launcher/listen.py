"""Where the launcher waits for the ranks' supervisors: a Unix socket on one host, TCP on several."""

from __future__ import annotations

import os
import secrets
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial

from sparse_ring.errors import SparseRingError

from .control import ACCEPTED, NONCE_BYTES, PROOF_BYTES, ROLES, SECRET_VARIABLE, check_proof, watch_peer
from .loop import Loop

Joined = Callable[[socket.socket, list[int], float], None]
"""Called with a supervisor's control socket, the descriptors from which its rank's stdout and stderr are read (empty
where these come with ``hello``), and the seconds to add to its clock's times."""

STRANGER_SECONDS = 10.0


class Listener(ABC):
    """Takes in supervisors and hands each to ``joined`` of :meth:`open`."""

    @abstractmethod
    def open(self, loop: Loop, ranks: int, joined: Joined) -> None:
        """Start to listen. Raises SparseRingError where that is not possible."""

    @abstractmethod
    def arguments(self) -> list[str]:
        """Return the stub's arguments that lead here."""

    def variables(self) -> dict[str, str]:
        """Return what the stubs must find in their environment."""
        return {}

    @abstractmethod
    def close(self) -> None:
        """Stop listening, which must have begun; sockets that were handed over stay open."""


class UnixListener(Listener):
    """Listens on a Unix socket at ``path``, which the file system's permissions protect."""

    def __init__(self, path: str) -> None:
        self._path = path

    def open(self, loop: Loop, ranks: int, joined: Joined) -> None:
        """See :meth:`Listener.open`."""
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.bind(self._path)
        except OSError as error:
            self._socket.close()
            raise SparseRingError(
                f"The launcher's socket {self._path}: {error}. Set TMPDIR to a shorter path."
            ) from None
        self._socket.listen(ranks)
        loop.add(self._socket, lambda: joined(self._socket.accept()[0], [], 0.0))

    def arguments(self) -> list[str]:
        """See :meth:`Listener.arguments`."""
        return ["--socket", self._path]

    def close(self) -> None:
        """See :meth:`Listener.close`."""
        self._socket.close()


class _Stranger:
    """A connection that has not yet proved that it belongs to the job."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.since = connection, time.monotonic()
        self.nonce = os.urandom(NONCE_BYTES)
        self.line = b""


class TcpListener(Listener):
    """Listens on ``address`` at a port that is free; three connections with the job's secret make one supervisor."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._secret = secrets.token_hex(32)
        self._strangers: list[_Stranger] = []
        self._parts: dict[int, dict[str, socket.socket]] = {}

    def open(self, loop: Loop, ranks: int, joined: Joined) -> None:
        """See :meth:`Listener.open`."""
        self._loop, self._ranks, self._joined = loop, ranks, joined
        self._socket = socket.socket()
        try:
            self._socket.bind((self._address, 0))
        except OSError as error:
            self._socket.close()
            raise SparseRingError(
                f"The launcher cannot listen on {self._address}: {error}. Choose a --network-interface of this host."
            ) from None
        self._socket.listen(max(128, len(ROLES) * ranks))
        loop.add(self._socket, self._accept)

    def arguments(self) -> list[str]:
        """See :meth:`Listener.arguments`."""
        return ["--connect", f"{self._address}:{self._socket.getsockname()[1]}"]

    def variables(self) -> dict[str, str]:
        """See :meth:`Listener.variables`."""
        return {SECRET_VARIABLE: self._secret}

    def close(self) -> None:
        """See :meth:`Listener.close`."""
        for stranger in list(self._strangers):
            self._refuse(stranger)
        for parts in self._parts.values():
            for connection in parts.values():
                connection.close()
        self._socket.close()

    def _accept(self) -> None:
        connection, _ = self._socket.accept()
        now = time.monotonic()
        for silent in [stranger for stranger in self._strangers if now - stranger.since > STRANGER_SECONDS]:
            self._refuse(silent)
        stranger = _Stranger(connection)
        self._strangers.append(stranger)
        connection.setblocking(False)
        self._loop.add(connection, partial(self._listen_to, stranger))
        try:
            connection.send(stranger.nonce)
        except OSError:
            self._refuse(stranger)

    def _refuse(self, stranger: _Stranger) -> None:
        self._strangers.remove(stranger)
        self._loop.remove(stranger.connection)
        stranger.connection.close()

    def _listen_to(self, stranger: _Stranger) -> None:
        try:
            data = stranger.connection.recv(PROOF_BYTES)
        except OSError:
            data = b""
        stranger.line += data
        if not data or len(stranger.line) > PROOF_BYTES:
            self._refuse(stranger)
        elif stranger.line.endswith(b"\n"):
            self._judge(stranger)

    def _judge(self, stranger: _Stranger) -> None:
        proof = check_proof(stranger.line[:-1], self._secret, stranger.nonce, self._ranks)
        parts = self._parts.setdefault(proof.rank, {}) if proof is not None else {}
        if proof is None or proof.role in parts:
            self._refuse(stranger)
            return
        connection = stranger.connection
        self._strangers.remove(stranger)
        self._loop.remove(connection)
        connection.setblocking(True)
        try:
            connection.send(ACCEPTED)
        except OSError:
            connection.close()
            return
        parts[proof.role] = connection
        if len(parts) == len(ROLES):
            control = parts["control"]
            watch_peer(control)
            # Of the time between nonce and proof, half went by before the supervisor read its clock.
            offset = (stranger.since + time.monotonic()) / 2 - proof.time
            # What was handed over stays here as a mark that this rank is taken.
            self._joined(control.dup(), [os.dup(parts[role].fileno()) for role in ROLES[:2]], offset)
            for part in parts.values():
                part.close()
