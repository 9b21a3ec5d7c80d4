"""What an operation sends and receives through: a transport with counters, polite waits and deadlines."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from sparse_ring.config import Config
from sparse_ring.engine.patience import SPINS, Patience
from sparse_ring.errors import StallError
from sparse_ring.observe.metrics import Metrics
from sparse_ring.observe.timeline import Timeline
from sparse_ring.transport.base import Bytes, Transfer, Transport

LOGGER = logging.getLogger("sparse_ring.engine")

CONTROL_TAG = 1
FIRST_DATA_TAG = 2
DATA_TAGS = 1024


class Link:
    """This rank's connection to all others; used on the engine's thread only.

    Attributes: ``rank``, ``size``, ``config``, ``metrics``, ``timeline``, ``patience``. ``failure`` is the first error of the
    transport or the StallError of a wait: after either, the ranks no longer know where the others are, and the engine ends.
    """

    def __init__(
        self, transport: Transport, config: Config, metrics: Metrics, timeline: Timeline | None = None
    ) -> None:
        self.rank, self.size = transport.rank, transport.size
        self.config, self.metrics = config, metrics
        self.timeline = timeline or Timeline()
        self.failure: BaseException | None = None
        # Whether a thread of this rank does nothing but wait for what is under way.
        self.hurry: Callable[[], bool] = lambda: False
        self.patience = Patience()
        self._transport = transport
        self._tag = FIRST_DATA_TAG

    def next_batch(self) -> None:
        """Take the next data tag: what a failed batch left behind can't be taken for data of a later one."""
        self._tag = FIRST_DATA_TAG + (self._tag - FIRST_DATA_TAG + 1) % DATA_TAGS

    def send(self, data: Bytes, destination: int) -> Transfer:
        """Start sending 1-D contiguous ``uint8`` data to a rank; unchanged until the transfer is done."""
        try:
            transfer = self._transport.isend(data, destination, self._tag)
        except BaseException as error:
            self._fail(error)
            raise
        self.metrics.sent_bytes += len(data)
        return transfer

    def recv(self, buffer: Bytes, source: int) -> Transfer:
        """Start receiving into a 1-D contiguous ``uint8`` buffer, which may be larger than the message."""
        try:
            return _CountedReceive(self._transport.irecv(buffer, source, self._tag), self.metrics)
        except BaseException as error:
            self._fail(error)
            raise

    def wait(self, transfers: Sequence[Transfer], what: str, ranks: Sequence[int] = ()) -> None:
        """Wait until all transfers are done, sleeping in between so that training keeps the core.

        ``what`` names the work and ``ranks`` the peers (empty: all others) in a warning after
        ``stall_check_time_seconds`` and in the StallError past ``stall_shutdown_time_seconds``.
        """
        try:
            self._wait(transfers, what, ranks or [rank for rank in range(self.size) if rank != self.rank])
        except BaseException as error:
            self._fail(error)
            raise

    def _wait(self, transfers: Sequence[Transfer], what: str, ranks: Sequence[int]) -> None:
        pending = list(transfers)
        for _ in range(SPINS):
            pending = [transfer for transfer in pending if not transfer.test()]
            if not pending:
                return
        config = self.config
        start = time.monotonic()
        warn_after = float("inf") if config.stall_check_disable else config.stall_check_time_seconds
        while pending:
            waited = time.monotonic() - start
            if waited >= warn_after:
                LOGGER.warning("Rank %d: %s has waited %.0f s for ranks %s.", self.rank, what, waited, list(ranks))
                warn_after += config.stall_check_time_seconds
            if 0 < config.stall_shutdown_time_seconds <= waited:
                raise StallError(what, ranks, waited)
            self.patience.pause(waited, self.hurry())
            pending = [transfer for transfer in pending if not transfer.test()]

    def _fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error


class _CountedReceive(Transfer):
    __slots__ = ("_done", "_inner", "_metrics")

    def __init__(self, inner: Transfer, metrics: Metrics) -> None:
        self._inner, self._metrics, self._done = inner, metrics, False

    def test(self) -> bool:
        if not self._done and self._inner.test():
            self._done = True
            self._metrics.received_bytes += self._inner.nbytes
        return self._done

    @property
    def nbytes(self) -> int:
        return self._inner.nbytes
