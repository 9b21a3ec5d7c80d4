"""How ranks find each other in a store of torch.distributed, with deadlines and names."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from sparse_ring.config import Config, Torchrun
from sparse_ring.errors import RankLostError, SparseRingError, StallError

LOGGER = logging.getLogger(__name__)

POLL_SECONDS = 0.002
LONGEST_POLL_SECONDS = 0.05
ATTEMPT_SECONDS = 5.0
# For a store that is there to answer.
ANSWER_SECONDS = 600.0

GONE = "has ended without shutdown(): it was killed, or failed with an error that its own output shows"


class Patience:
    """How long this rank has waited in ``init()``: warns and raises as the settings say."""

    def __init__(self, rank: int, config: Config) -> None:
        self._rank, self._config = rank, config
        self._began = time.monotonic()
        self._warn_after = config.stall_check_time_seconds

    @property
    def waited(self) -> float:
        """Seconds so far."""
        return time.monotonic() - self._began

    def check(self, missing: Sequence[int], what: str = "") -> None:
        """Warn where it is time to, naming who is missing and ``what`` they have; StallError past the deadline."""
        waited, limit = self.waited, self._config.stall_shutdown_time_seconds
        if waited >= self._warn_after:
            self._warn_after += self._config.stall_check_time_seconds
            if not self._config.stall_check_disable:
                LOGGER.warning(
                    "Rank %d: init() has waited %.0f s for ranks %s%s.", self._rank, waited, list(missing), what
                )
        if 0 < limit <= waited:
            raise StallError(f"init(){what}", missing, waited)


def connect(variables: Torchrun, config: Config) -> Any:
    """Return the store at ``MASTER_ADDR``, ``MASTER_PORT``; without torchrun's agent, rank 0 holds it.

    Unlike torch's own way, waits for no other rank than that, and not in silence. Raises StallError past the deadline, and
    SparseRingError where the store cannot be opened.
    """
    import torch.distributed as distributed

    dist: Any = distributed
    holds = variables.rank == 0 and not variables.agent_store
    if not holds:
        _wait_for_port(variables, config)
    try:
        store = dist.TCPStore(
            variables.address,
            variables.port,
            variables.size,
            holds,
            timedelta(seconds=ANSWER_SECONDS),
            wait_for_workers=False,
            multi_tenant=True,
            use_libuv=variables.libuv,
        )
    except RuntimeError as error:
        raise SparseRingError(
            f"Rank {variables.rank} cannot {'open' if holds else 'use'} the store at MASTER_ADDR, MASTER_PORT, "
            f"{variables.address}:{variables.port} ({str(error).splitlines()[0]})."
        ) from error
    return store


def _wait_for_port(variables: Torchrun, config: Config) -> None:
    # torch's client prints the C++ stack of each attempt that fails.
    patience = Patience(variables.rank, config)
    address = variables.address, variables.port
    while True:
        try:
            socket.create_connection(address, timeout=ATTEMPT_SECONDS).close()
            return
        except OSError as error:
            reason = error
        patience.check([0], f" at MASTER_ADDR, MASTER_PORT, {address[0]}:{address[1]} ({reason})")
        time.sleep(LONGEST_POLL_SECONDS)


def gather(store: Any, rank: int, ranks: Sequence[int], config: Config, gone: Callable[[], int | None]) -> None:
    """Wait in a store until all ``ranks`` have come to the same place.

    ``gone`` names a rank that has given up, if there is one: then RankLostError. Warns and raises StallError, naming who is
    missing.
    """
    store.set(f"here/{rank}", "")
    missing = [one for one in ranks if one != rank]
    patience = Patience(rank, config)
    while True:
        missing = [one for one in missing if not store.check([f"here/{one}"])]
        if not missing:
            return
        lost = gone()
        if lost is not None:
            raise RankLostError(lost, "", GONE)
        patience.check(missing)
        time.sleep(min(LONGEST_POLL_SECONDS, POLL_SECONDS + patience.waited / 100))
