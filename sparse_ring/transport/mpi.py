"""Transfers over MPI (mpi4py): non-blocking, on an own duplicate of the communicator.

Importing this module does not start MPI; constructing :class:`MpiTransport` does, unless the program has.
A message of N bytes travels as pieces of ``piece_bytes``, the last of which is shorter (perhaps empty), because MPI
counts bytes in a C int.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, Any

from sparse_ring.config import Config
from sparse_ring.errors import ConfigError, MessageError, SparseRingError, StallError
from sparse_ring.transport.base import Bytes, Transfer, Transport

if TYPE_CHECKING:
    from mpi4py.MPI import Comm, Request

LOGGER = logging.getLogger(__name__)

PIECE_BYTES = 1 << 30
OPEN_POLL_SECONDS = 0.001
CANCEL_SECONDS = 1.0

# What a failed engine left in MPI's hands: MPI may still write to these buffers, so they must never be freed.
_ABANDONED: list[_Pieces] = []


class MpiTransport(Transport):
    """The ranks of an mpi4py intra-communicator (default: the world).

    Raises SparseRingError where MPI was started without thread support (``MPI_THREAD_MULTIPLE``), and ConfigError for
    ``piece_bytes`` outside 1 to 2**31 - 1; it must be the same on all ranks.
    """

    def __init__(self, comm: Comm | None = None, piece_bytes: int = PIECE_BYTES, config: Config | None = None) -> None:
        if not 1 <= piece_bytes < 2**31:
            raise ConfigError("piece_bytes", piece_bytes, "a number of bytes from 1 to 2**31 - 1")
        from mpi4py import MPI

        if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
            raise SparseRingError(
                "MPI was started without MPI_THREAD_MULTIPLE, which the engine's thread needs; "
                "don't lower mpi4py.rc.thread_level, and use an MPI library that supports it."
            )
        self._mpi: Any = MPI
        self._byte: Any = MPI.BYTE
        self._status: Any = MPI.Status()
        self._parent: Any = MPI.COMM_WORLD if comm is None else comm
        self._comm: Any = None
        self._piece_bytes = piece_bytes
        self._config = config or Config()
        self._unfinished: set[_Pieces] = set()
        self._last_receive: dict[tuple[int, int], _Receive] = {}
        self.rank, self.size = self._parent.Get_rank(), self._parent.Get_size()

    def open(self) -> None:
        """Duplicate the communicator, sleeping while other ranks are not there yet.

        Warns and raises StallError after the times of the stall check. MPI does not tell which ranks are missing.
        """
        duplicate, request = self._parent.Idup()
        others = [rank for rank in range(self.size) if rank != self.rank]
        limit, warn_after = self._config.stall_shutdown_time_seconds, self._config.stall_check_time_seconds
        began = time.monotonic()
        while not request.Test():
            waited = time.monotonic() - began
            if waited >= warn_after and not self._config.stall_check_disable:
                LOGGER.warning("Rank %d: init() has waited %.0f s for some of ranks %s.", self.rank, waited, others)
                warn_after += self._config.stall_check_time_seconds
            if 0 < limit <= waited:
                raise StallError("init(): at least one of the others", others, waited)
            time.sleep(OPEN_POLL_SECONDS)
        self._comm = duplicate

    def isend(self, data: Bytes, destination: int, tag: int) -> Transfer:
        """Start all pieces of a message at once."""
        transfer = _Send(self, data)
        if len(data) < self._piece_bytes:
            transfer.requests.append(self._comm.Isend([data, self._byte], destination, tag))
            self._unfinished.add(transfer)
            return transfer
        for start in range(0, len(data) + 1, self._piece_bytes):
            piece = data[start : start + self._piece_bytes]
            transfer.requests.append(self._comm.Isend([piece, self._byte], destination, tag))
        self._unfinished.add(transfer)
        return transfer

    def irecv(self, buffer: Bytes, source: int, tag: int) -> Transfer:
        """Post the first piece, or wait in line behind a receive whose number of pieces is not known yet."""
        transfer = _Receive(self, buffer, source, tag, self._last_receive.get((source, tag)))
        self._last_receive[source, tag] = transfer
        self._unfinished.add(transfer)
        transfer.advance()
        return transfer

    def close(self) -> None:
        """Free the duplicate; after a failure, cancel what can be cancelled and leave the duplicate to MPI."""
        unfinished = list(self._unfinished)
        for transfer in unfinished:
            transfer.cancel()
        deadline = time.monotonic() + CANCEL_SECONDS
        while any(not transfer.cancelled() for transfer in unfinished) and time.monotonic() < deadline:
            time.sleep(OPEN_POLL_SECONDS)
        _ABANDONED.extend(transfer for transfer in unfinished if not transfer.cancelled())
        self._unfinished.clear()
        self._last_receive.clear()
        # Freeing is a collective call: with transfers left, the others may never make it.
        if self._comm is not None and not unfinished:
            self._comm.Free()
        self._comm = None

    def abort(self, code: int) -> None:
        """End all processes of the job, and this one."""
        self._parent.Abort(code)
        # MPICH's Abort may return before its launcher ends this process, which would then run on into Finalize.
        os._exit(code)

    def start_receive(self, piece: Bytes, source: int, tag: int) -> Request:
        """Post the receive of one piece."""
        request: Request = self._comm.Irecv([piece, self._byte], source, tag)
        return request

    def test(self, request: Request) -> int | None:
        """Return how many bytes a piece brought, or None while it travels. Raises mpi4py's exceptions."""
        if not request.Test(self._status):
            return None
        count: int = self._status.Get_count(self._byte)
        return count

    def truncated(self, error: Exception) -> bool:
        """Return whether an exception says that a message was larger than its buffer."""
        return isinstance(error, self._mpi.Exception) and error.Get_error_class() == self._mpi.ERR_TRUNCATE

    @property
    def piece_bytes(self) -> int:
        """Bytes of all pieces but a message's last."""
        return self._piece_bytes

    def finished(self, transfer: _Pieces) -> None:
        """Forget a transfer that is done or has failed."""
        self._unfinished.discard(transfer)


class _Pieces(Transfer):
    """A transfer in pieces; ``requests`` are those that are under way."""

    __slots__ = ("_data", "_nbytes", "_transport", "requests")

    def __init__(self, transport: MpiTransport, data: Bytes) -> None:
        self._transport, self._data, self._nbytes = transport, data, len(data)
        self.requests: list[Request] = []

    @property
    def nbytes(self) -> int:
        return self._nbytes

    def cancel(self) -> None:
        """Ask MPI to give the transfer up."""
        for request in self.requests:
            request.Cancel()

    def cancelled(self) -> bool:
        """Return whether MPI has let go of the buffer."""
        self.requests = [request for request in self.requests if not request.Test()]
        return not self.requests


class _Send(_Pieces):
    __slots__ = ()

    def test(self) -> bool:
        if self.requests:
            self.requests = [request for request in self.requests if not request.Test()]
            if not self.requests:
                self._transport.finished(self)
        return not self.requests

    def cancel(self) -> None:
        """Cancelling a send is deprecated in MPI; it may still complete."""


class _Receive(_Pieces):
    """A receive; its pieces are posted one after the other, because only a short one tells that it is the last."""

    __slots__ = ("_after", "_done", "_error", "_source", "_tag")

    def __init__(self, transport: MpiTransport, buffer: Bytes, source: int, tag: int, after: _Receive | None) -> None:
        super().__init__(transport, buffer)
        self._source, self._tag, self._after = source, tag, after
        self._nbytes = 0
        self._done = False
        self._error: Exception | None = None

    def posted(self) -> bool:
        """Return whether every piece that this receive can need has been posted, so that the next may follow."""
        return (
            self._done
            or self._error is not None
            or (bool(self.requests) and len(self._data) < self._transport.piece_bytes)
        )

    def advance(self) -> None:
        """Post the first piece once it is this receive's turn."""
        if self._after is not None and not self._after.posted():
            self._after.test()
            if not self._after.posted():
                return
        self._after = None
        self._post()

    def test(self) -> bool:
        if self._error is not None:
            raise self._error.with_traceback(None)
        if not self._done and not self.requests:
            self.advance()
        while self.requests:
            try:
                arrived = self._transport.test(self.requests[0])
            except Exception as error:
                self.requests.clear()
                self._transport.finished(self)
                self._error = error
                if self._transport.truncated(error):
                    text = f"more bytes arrived than the buffer's {len(self._data)}"
                    self._error = MessageError(text, rank=self._source)
                raise self._error from None
            if arrived is None:
                break
            self.requests.clear()
            self._nbytes += arrived
            if arrived == self._transport.piece_bytes:
                self._post()
            else:
                self._done = True
                self._data = self._data[:0].copy()
                self._transport.finished(self)
        return self._done

    def _post(self) -> None:
        piece = self._data[self._nbytes : self._nbytes + self._transport.piece_bytes]
        self.requests.append(self._transport.start_receive(piece, self._source, self._tag))
