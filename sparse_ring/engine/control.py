"""The transfers of control frames: each round, one from every living rank to every other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import numpy as np

from sparse_ring.engine.frames import CAPACITY_BYTES
from sparse_ring.engine.link import CONTROL_TAG
from sparse_ring.engine.patience import SPINS, Patience
from sparse_ring.observe.metrics import Metrics
from sparse_ring.transport.base import Bytes, Transfer, Transport


class Control:
    """This rank's control channel. A receive is always posted for each living peer, but after a goodbye.

    ``peers`` are the other ranks that are still there.
    """

    def __init__(self, transport: Transport, metrics: Metrics, patience: Patience | None = None) -> None:
        self.peers = [rank for rank in range(transport.size) if rank != transport.rank]
        self._transport, self._metrics = transport, metrics
        self._patience = patience or Patience()
        self._buffers: dict[int, Bytes] = {}
        self._receives: dict[int, Transfer] = {}

    def post(self, gone: Iterable[int] = ()) -> None:
        """Forget the ranks that have gone, and post a receive for the next frame of each other one."""
        left = set(gone)
        self.peers = [peer for peer in self.peers if peer not in left]
        for peer in self.peers:
            buffer = self._buffers.get(peer)
            if buffer is None:
                buffer = self._buffers[peer] = np.empty(CAPACITY_BYTES, dtype=np.uint8)
            self._receives[peer] = self._transport.irecv(buffer, peer, CONTROL_TAG)

    def arrived(self) -> bool:
        """Return whether a peer has entered the next round."""
        return any(receive.test() for receive in self._receives.values())

    def exchange(
        self,
        data: bytes,
        arrived: Callable[[int, bytes], None],
        waiting: Callable[[float], None],
        hurry: Callable[[], bool] = lambda: False,
        payload_bytes: int = 0,
    ) -> None:
        """Send a frame to every peer and wait for each one's; ``payload_bytes`` of it are data, and counted as such.

        ``arrived(rank, frame)`` is called as each comes; ``waiting(seconds)`` before each sleep, and may raise;
        ``hurry()`` tells whether a caller does nothing but wait.
        """
        frame = np.frombuffer(data, dtype=np.uint8)
        sends = [self._transport.isend(frame, peer, CONTROL_TAG) for peer in self.peers]
        self._metrics.control_bytes += (len(data) - payload_bytes) * len(self.peers)
        self._metrics.sent_bytes += payload_bytes * len(self.peers)
        start = time.monotonic()
        polls = 0
        receives = self._receives
        while True:
            for peer in self.peers:
                receive = receives.get(peer)
                if receive is not None and receive.test():
                    del receives[peer]
                    arrived(peer, self._buffers[peer][: receive.nbytes].tobytes())
            if sends:
                sends = [send for send in sends if not send.test()]
            if not receives and not sends:
                return
            polls += 1
            if polls > SPINS:
                waited = time.monotonic() - start
                waiting(waited)
                self._patience.pause(waited, hurry())
