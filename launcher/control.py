"""What a supervisor and the launcher say to each other: lines of JSON over a Unix socket.

The supervisor speaks first, sending the read ends of the rank's stdout and stderr along with ``hello``; then
``orphaned`` when MPI has ended its stub, ``ended`` when the command is over, and ``clean`` when nothing of it runs any
more. The launcher answers ``TERMINATE`` or ``KILL``; closing the socket releases the supervisor.
"""

from __future__ import annotations

import json
import socket
from dataclasses import asdict, dataclass

TERMINATE = b"T"
KILL = b"K"
TERM_SECONDS = 3.0


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
    """

    event: str
    rank: int
    pid: int
    time: float
    status: int = 0
    ordered: bool = False
    reason: str = ""
    member: bool = False

    def encode(self) -> bytes:
        """Return the line, newline included."""
        return json.dumps(asdict(self)).encode() + b"\n"


def decode(line: bytes) -> Report:
    """Read one line back."""
    return Report(**json.loads(line))


def receive_hello(channel: socket.socket) -> tuple[bytes, list[int]]:
    """Receive the first bytes of a supervisor and the two file descriptors that come with them."""
    data, descriptors, _, _ = socket.recv_fds(channel, 65536, 2)
    return data, descriptors


def send_hello(channel: socket.socket, report: Report, stdout: int, stderr: int) -> None:
    """Send ``hello`` together with the read ends of the rank's stdout and stderr."""
    socket.send_fds(channel, [report.encode()], [stdout, stderr])
