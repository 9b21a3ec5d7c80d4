"""What a supervisor and the launcher say to each other: lines of JSON over a socket.

The supervisor speaks first, with ``hello``; then ``orphaned`` when MPI has ended its stub, ``ended`` when the command is
over, and ``clean`` when nothing of it runs any more. The launcher answers ``TERMINATE`` or ``KILL``; closing the socket
releases the supervisor.

On one host this is a Unix socket, and the read ends of the rank's stdout and stderr come along with ``hello``. On
several hosts it is a TCP connection, with two more for the bytes of stdout and stderr. Each of the three opens like
this, so that nobody else gets in: the launcher sends a nonce of 16 bytes; the supervisor answers with :class:`Proof`, a
line that only one who knows the job's secret can write; the launcher answers ``ACCEPTED``, or closes.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
from dataclasses import asdict, dataclass

TERMINATE = b"T"
KILL = b"K"
TERM_SECONDS = 3.0

SECRET_VARIABLE = "SPARSE_RING_LAUNCHER_SECRET"
NONCE_BYTES = 16
ACCEPTED = b"+"
ROLES = ("stdout", "stderr", "control")
PROOF_BYTES = 256
_SILENCE_SECONDS = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """One line of a supervisor.

    event
        ``"hello"``, ``"orphaned"``, ``"ended"`` or ``"clean"``.
    rank, pid
        Of the command that runs (``pid`` is 0 where it could not be started).
    time
        ``time.monotonic()`` in seconds, which all processes of a host share.
    status
        Of ``ended``: exit code, or minus the signal.
    ordered
        The command was told to end before it did.
    reason
        Of ``hello``: why the command could not be started. Of ``ended``: its uncaught exception. Else empty.
    member
        Of ``ended``: the rank had called ``init()`` and not ``shutdown()``.
    host
        Where there are several: the name of this one. Else empty.
    """

    event: str
    rank: int
    pid: int
    time: float
    status: int = 0
    ordered: bool = False
    reason: str = ""
    member: bool = False
    host: str = ""

    def encode(self) -> bytes:
        """Return the line, newline included."""
        return json.dumps(asdict(self)).encode() + b"\n"


def decode(line: bytes) -> Report:
    """Read one line back."""
    return Report(**json.loads(line))


def receive(channel: socket.socket) -> tuple[bytes, list[int]]:
    """Receive bytes of a supervisor, and the two file descriptors that come with the first of a Unix socket."""
    data, descriptors, _, _ = socket.recv_fds(channel, 65536, 2)
    return data, descriptors


def send_hello(channel: socket.socket, report: Report, stdout: int, stderr: int) -> None:
    """Send ``hello`` over a Unix socket together with the read ends of the rank's stdout and stderr."""
    socket.send_fds(channel, [report.encode()], [stdout, stderr])


@dataclass(frozen=True, slots=True)
class Proof:
    """How a supervisor introduces a TCP connection: ``role`` of :data:`ROLES`, ``rank``, its clock's ``time``."""

    role: str
    rank: int
    time: float

    def encode(self, secret: str, nonce: bytes) -> bytes:
        """Return the line, newline included; ``nonce`` makes it good for one connection only."""
        text = f"{self.role} {self.rank} {self.time!r}"
        return f"{text} {_sign(secret, nonce, text)}\n".encode()


def check_proof(line: bytes, secret: str, nonce: bytes, ranks: int) -> Proof | None:
    """Read a proof back, None where it is none for this job of ``ranks`` ranks."""
    text, _, signature = line.decode(errors="replace").rpartition(" ")
    if not hmac.compare_digest(signature.encode(), _sign(secret, nonce, text).encode()):
        return None
    role, rank, time = text.split(" ")
    return Proof(role, int(rank), float(time)) if role in ROLES and 0 <= int(rank) < ranks else None


def watch_peer(channel: socket.socket) -> None:
    """Let the kernel notice within six seconds that the host at the other end is gone, also where nothing is sent.

    The kernels answer each other, so a process that is stopped for a while is not taken for dead.
    """
    channel.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    options = {"TCP_KEEPIDLE": 2, "TCP_KEEPINTVL": 1, "TCP_KEEPCNT": _SILENCE_SECONDS - 2}
    options["TCP_USER_TIMEOUT"] = 1000 * _SILENCE_SECONDS
    for name, value in options.items():
        if hasattr(socket, name):
            channel.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _sign(secret: str, nonce: bytes, text: str) -> str:
    return hmac.new(secret.encode(), nonce + text.encode(), hashlib.sha256).hexdigest()
