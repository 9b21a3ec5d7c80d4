"""Ranks are threads of one process: the transport for tests and for a first look.

It keeps MPI's habits, so that what passes here passes there: a small message is copied and its send is done at once;
a large one is handed over, and its send is done only when the receiver has taken it.
"""

from __future__ import annotations

import threading
from collections import deque

from sparse_ring.errors import ConfigError, MessageError, SparseRingError
from sparse_ring.transport.base import Bytes, Transfer, Transport

EAGER_BYTES = 64 << 10


class ThreadWorld:
    """``size`` ranks in one process; each thread takes its own :meth:`transport`.

    Raises ConfigError where ``size`` is below 1.
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ConfigError("size", size, "a whole number >= 1")
        self.size = size
        self._lock = threading.Lock()
        self._channels: dict[tuple[int, int, int], _Channel] = {}
        self._aborted: tuple[int, int] | None = None

    def transport(self, rank: int) -> Transport:
        """Return the transport of one rank. Raises ConfigError unless ``0 <= rank < size``."""
        if not 0 <= rank < self.size:
            raise ConfigError("rank", rank, f"a whole number from 0 to {self.size - 1}")
        return _ThreadTransport(self, rank)

    def check(self) -> None:
        """Raise SparseRingError once a rank has aborted the world."""
        if self._aborted is not None:
            raise SparseRingError(
                f"Rank {self._aborted[0]} aborted the job with code {self._aborted[1]}; its own error says why."
            )

    def abort(self, rank: int, code: int) -> None:
        """Mark the world broken; the first abort is the one that is reported."""
        with self._lock:
            if self._aborted is None:
                self._aborted = (rank, code)

    def channel(self, source: int, destination: int, tag: int) -> _Channel:
        """Return the queue of one direction and tag."""
        key = (source, destination, tag)
        with self._lock:
            found = self._channels.get(key)
            if found is None:
                found = self._channels[key] = _Channel()
            return found

    def unmatched(self) -> int:
        """Return how many sends and receives have found no partner (0 after a clean end)."""
        with self._lock:
            return sum(len(channel.sends) + len(channel.receives) for channel in self._channels.values())


class _ThreadTransfer(Transfer):
    __slots__ = ("_nbytes", "data", "done", "error", "world")

    def __init__(self, world: ThreadWorld, data: Bytes) -> None:
        self.world, self.data = world, data
        self._nbytes = len(data)
        self.done = False
        self.error: MessageError | None = None

    def test(self) -> bool:
        if self.error is not None:
            raise self.error.with_traceback(None)
        if not self.done:
            self.world.check()
        return self.done

    @property
    def nbytes(self) -> int:
        return self._nbytes

    def take(self, send: _ThreadTransfer, source: int) -> None:
        """Copy a matching send into this receive's buffer and end both."""
        if len(send.data) > len(self.data):
            self.error = MessageError(
                f"{len(send.data)} bytes arrived, but the buffer holds {len(self.data)}", rank=source
            )
        else:
            self.data[: len(send.data)] = send.data
            self._nbytes = len(send.data)
        self.done = send.done = True


class _Channel:
    """Messages of one direction and tag, matched with receives in order by whoever comes second."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sends: deque[_ThreadTransfer] = deque()
        self.receives: deque[_ThreadTransfer] = deque()

    def send(self, transfer: _ThreadTransfer, source: int) -> None:
        with self.lock:
            receive = self.receives.popleft() if self.receives else None
            if receive is None:
                if len(transfer.data) <= EAGER_BYTES:
                    transfer.data = transfer.data.copy()
                    transfer.done = True
                self.sends.append(transfer)
        if receive is not None:
            receive.take(transfer, source)

    def receive(self, transfer: _ThreadTransfer, source: int) -> None:
        with self.lock:
            send = self.sends.popleft() if self.sends else None
            if send is None:
                self.receives.append(transfer)
        if send is not None:
            transfer.take(send, source)


class _ThreadTransport(Transport):
    def __init__(self, world: ThreadWorld, rank: int) -> None:
        self.rank, self.size = rank, world.size
        self._world = world

    def open(self) -> None:
        self._world.check()

    def isend(self, data: Bytes, destination: int, tag: int) -> Transfer:
        transfer = _ThreadTransfer(self._world, data)
        self._world.channel(self.rank, destination, tag).send(transfer, self.rank)
        return transfer

    def irecv(self, buffer: Bytes, source: int, tag: int) -> Transfer:
        transfer = _ThreadTransfer(self._world, buffer)
        self._world.channel(source, self.rank, tag).receive(transfer, source)
        return transfer

    def close(self) -> None:
        pass

    def abort(self, code: int) -> None:
        self._world.abort(self.rank, code)
