"""Transfers over torch.distributed's gloo, for jobs that torchrun starts: no MPI is needed.

gloo tells neither how long a message is nor, before a blocking wait, whether it has come; a wait that times out closes
the connection, and a message longer than its buffer ends the process. Hence:

* A message is a **head** (u64 length, u64 tag, and the data itself up to ``EAGER_BYTES``), and for a longer one then
  the **rest**: all of the data, straight from the sender's buffer into the receiver's, in pieces of ``piece_bytes``.
* All heads of a peer travel on one tag of gloo, for which four receives are always posted. One thread a peer, its
  **reader**, sits in gloo's wait (which holds no GIL), matches heads with receives by tag and notes what is done.
  ``test()`` reads a flag.
* Blocking waits for what is sent, and for the rest of messages that came before their receive, sit in threads of
  a pool.
* A transport that is closed says so, and its peers' readers answer, so that the readers on both sides end. A connection
  that ends without that is a lost rank: from then on ``test()`` raises RankLostError for whatever is unfinished.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from sparse_ring.config import Config
from sparse_ring.errors import ConfigError, RankLostError, SparseRingError
from sparse_ring.transport.base import Bytes, Transfer, Transport
from sparse_ring.transport.torch_distributed.meeting import GONE, gather
from sparse_ring.transport.torch_distributed.peer import EAGER_BYTES, FOREVER, GlooPeer
from sparse_ring.transport.torch_distributed.transfers import FIRST_TAG, GlooReceive, GlooSend, tensor_on
from sparse_ring.transport.torch_distributed.waiters import Waiters

LOGGER = logging.getLogger(__name__)

PIECE_BYTES = 1 << 30
CLOSE_SECONDS = 2.0
# Only a crowded machine needs so long, but where a thread is still there after it, Python's end may crash.
CUT_SECONDS = 10.0

LEFT = "has shut down, and sends nothing more"

# Transports whose threads may still wait for a peer.
_OPEN: list[C10dTransport] = []


class C10dTransport(Transport):
    """Ranks that share a store (``torch.distributed.Store``), in which nobody else uses the same keys.

    ``gone`` is asked while ranks wait to be connected: it names one that has given up, if there is one. ``connected`` is called
    when the store is needed no more.
    Raises ConfigError for ``piece_bytes`` outside 1 to 2**31 - 1; it must be the same on all ranks.
    """

    def __init__(
        self,
        store: Any,
        rank: int,
        size: int,
        piece_bytes: int = PIECE_BYTES,
        config: Config | None = None,
        gone: Callable[[], int | None] = lambda: None,
        connected: Callable[[], None] = lambda: None,
    ) -> None:
        if not 1 <= piece_bytes < 2**31:
            raise ConfigError("piece_bytes", piece_bytes, "a number of bytes from 1 to 2**31 - 1")
        self.rank, self.size = rank, size
        self.piece_bytes = piece_bytes
        self._store, self._config, self._gone, self._connected = store, config or Config(), gone, connected
        self._lock = threading.Lock()
        self._waiters = Waiters(f"sparse_ring-waiter-{rank}")
        self._group: Any = None
        self._peers: dict[int, GlooPeer] = {}
        self._posted: dict[tuple[int, int], deque[GlooReceive]] = {}
        self._early: dict[tuple[int, int], deque[tuple[int, Bytes | None]]] = {}
        self._sends: set[GlooSend] = set()
        self._lost: int | None = None
        self._closing = False

    def open(self) -> None:
        """Connect all ranks once everybody is there; warns and raises StallError, naming who is missing."""
        import torch.distributed as distributed

        dist: Any = distributed
        limit = self._config.stall_shutdown_time_seconds
        try:
            gather(self._store, self.rank, range(self.size), self._config, self._gone)
            store = dist.PrefixStore("gloo", self._store)
            self._group = dist.ProcessGroupGloo(
                store, self.rank, self.size, timedelta(seconds=limit) if limit else FOREVER
            )
            self._peers = {rank: GlooPeer(self, self._group, rank) for rank in range(self.size) if rank != self.rank}
        except SparseRingError:
            raise
        except RuntimeError as error:
            raise SparseRingError(
                f"Rank {self.rank} cannot connect to the others ({str(error).splitlines()[0]}). Where a rank has ended, "
                f"its own output says why; GLOO_SOCKET_IFNAME names the network interface to use."
            ) from error
        finally:
            self._store = None
            self._connected()
        _OPEN.append(self)
        for peer in self._peers.values():
            peer.start()

    def isend(self, data: Bytes, destination: int, tag: int) -> Transfer:
        """Start sending; up to ``EAGER_BYTES`` are copied, and done at once."""
        transfer = GlooSend(self, data, destination)
        if destination == self.rank:
            self.arrived(destination, tag, len(data), data)
            transfer.done = True
            return transfer
        peer = self._peers[destination]
        try:
            if len(data) <= EAGER_BYTES:
                peer.send_head(len(data), tag, data)
                transfer.done = True
                return transfer
            peer.send_head(len(data), tag)
            transfer.works = [
                self._group.send([tensor_on(piece)], destination, FIRST_TAG + tag) for piece in self.pieces(data)
            ]
        except RuntimeError as error:
            transfer.error = self.lose(destination, error)
            return transfer
        self._sends.add(transfer)
        self._waiters.run(transfer.wait)
        return transfer

    def irecv(self, buffer: Bytes, source: int, tag: int) -> Transfer:
        """Take a message that has come before, or wait in line for the next one."""
        receive = GlooReceive(self, buffer, source, tag)
        with self._lock:
            early = self._early.get((source, tag))
            if not early:
                self._posted.setdefault((source, tag), deque()).append(receive)
                if source != self.rank and self._peers[source].closed:
                    receive.error = RankLostError(source, "", LEFT)
                return receive
            nbytes, payload = early.popleft()
        try:
            rest_follows = receive.begin(nbytes, payload)
        except RuntimeError as error:
            receive.error = self.lose(source, error)
            return receive
        if rest_follows:
            self._waiters.run(receive.wait_for_rest)
        return receive

    def close(self) -> None:
        """Say so to the peers and wait until they have answered, for two seconds at most.

        After a failure nothing is said: the connections end with the process, and the buffers of what is unfinished live as
        long.
        """
        self._closing = True
        in_order = self._lost is None and not self._sends and not any(self._posted.values())
        if in_order:
            deadline = time.monotonic() + CLOSE_SECONDS
            for peer in self._peers.values():
                peer.say_closed()
            for peer in self._peers.values():
                peer.delivered.wait(max(0.0, deadline - time.monotonic()))
                peer.join(max(0.0, deadline - time.monotonic()))
        self._waiters.close()
        # The group must not end in another thread than this one, which Python does not stop in the midst of it.
        if not self._unfinished(CLOSE_SECONDS if in_order else 0.0):
            self._peers, self._group = {}, None
            if self in _OPEN:
                _OPEN.remove(self)

    def abort(self, code: int) -> None:
        """End this process; the others see their connection to it end, and raise RankLostError."""
        end_process(code)

    def cut(self) -> None:
        """Close all connections by force, which ends the threads that wait for them, and wait for these."""
        for peer in self._peers.values():
            if peer.is_alive():
                peer.cut()
        self._unfinished(CUT_SECONDS)

    def _unfinished(self, seconds: float) -> bool:
        """Return whether threads still wait after so long."""
        threads = [*self._peers.values(), *self._waiters.threads]
        deadline = time.monotonic() + seconds
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return any(thread.is_alive() for thread in threads)

    @property
    def group(self) -> Any:
        """The process group of gloo."""
        return self._group

    @property
    def waiters(self) -> Waiters:
        """The threads for blocking waits."""
        return self._waiters

    def pieces(self, data: Bytes) -> list[Bytes]:
        """Cut a buffer as it travels."""
        return [data[start : start + self.piece_bytes] for start in range(0, len(data), self.piece_bytes)]

    def arrived(self, source: int, tag: int, nbytes: int, payload: Bytes | None) -> GlooReceive | None:
        """Match a head with its receive; returns the receive where a rest follows that has to be waited for."""
        with self._lock:
            posted = self._posted.get((source, tag))
            if posted:
                receive = posted.popleft()
                return receive if receive.begin(nbytes, payload) else None
            message = (nbytes, None if payload is None else payload.copy())
            self._early.setdefault((source, tag), deque()).append(message)
            return None

    def left(self, source: int) -> None:
        """Note that a peer has closed in order: what is still posted for it will not come."""
        with self._lock:
            for (rank, _), posted in self._posted.items():
                for receive in posted if rank == source else ():
                    receive.error = RankLostError(source, "", LEFT)

    def lose(self, rank: int, error: Exception) -> SparseRingError:
        """Note that the connection to a rank has ended; returns what transfers with it raise."""
        if self._peers[rank].closed:
            return RankLostError(rank, "", LEFT)
        with self._lock:
            if self._lost is None and not self._closing:
                LOGGER.debug("Rank %d has lost rank %d: %s", self.rank, rank, error)
                self._lost = rank
        return RankLostError(rank, "", GONE)

    def check(self) -> None:
        """Raise RankLostError once any rank is lost; the first one is named."""
        if self._lost is not None:
            raise RankLostError(self._lost, "", GONE)

    def sent(self, transfer: GlooSend) -> None:
        """Forget a send that is done or has failed."""
        self._sends.discard(transfer)


def end_process(code: int) -> None:
    """End this process at once, but for what it has printed."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    os._exit(code)


@atexit.register
def _cut_connections() -> None:
    # A thread that wakes in gloo's wait while Python ends would take the process down with it.
    while _OPEN:
        _OPEN.pop().cut()
