"""Operations that wait too long for other ranks: reported by name, and ended past the deadline."""

from __future__ import annotations

import time
from collections.abc import Callable

from sparse_ring.config import Config
from sparse_ring.engine.link import LOGGER
from sparse_ring.engine.queue import Submitted
from sparse_ring.errors import StallError

LONGEST_INTERVAL_SECONDS = 1.0
MOST_NAMES = 5


class StallCheck:
    """Looks at the open operations now and then; costs one clock reading in between."""

    def __init__(self, rank: int, config: Config) -> None:
        self._rank = rank
        self._warn_seconds = float("inf") if config.stall_check_disable else config.stall_check_time_seconds
        self._limit_seconds = config.stall_shutdown_time_seconds or float("inf")
        self._interval = min(LONGEST_INTERVAL_SECONDS, self._warn_seconds / 2, self._limit_seconds / 2)
        self._next = 0.0

    def overdue(
        self, operations: Callable[[], list[Submitted]], missing: Callable[[str], list[int]]
    ) -> list[tuple[Submitted, StallError]]:
        """Report what waits long, once per ``stall_check_time_seconds``; return what is past the deadline.

        ``missing(name)`` tells the ranks that have not submitted it.
        """
        now = time.monotonic()
        if now < self._next:
            return []
        self._next = now + self._interval
        late = []
        waiting: dict[tuple[int, ...], list[Submitted]] = {}
        for submitted in operations():
            waited = now - submitted.since
            if waited >= self._limit_seconds:
                late.append((submitted, StallError(f"Tensor '{submitted.name}'", missing(submitted.name), waited)))
            elif now - max(submitted.since, submitted.reported) >= self._warn_seconds:
                submitted.reported = now
                waiting.setdefault(tuple(missing(submitted.name)), []).append(submitted)
        for ranks, stalled in waiting.items():
            names = ", ".join(f"'{submitted.name}'" for submitted in stalled[:MOST_NAMES])
            more = f" and {len(stalled) - MOST_NAMES} more" if len(stalled) > MOST_NAMES else ""
            LOGGER.warning(
                "Rank %d: tensor%s %s%s waited %.0f s for ranks %s, which have not submitted %s.",
                self._rank, "s" * (len(stalled) > 1), names, f"{more} have" if len(stalled) > 1 else " has",
                now - min(submitted.since for submitted in stalled), list(ranks), "them" if len(stalled) > 1 else "it",
            )  # fmt: skip
        return late

    def goodbye(self, waited: float, absent: list[int]) -> None:
        """While this rank leaves: raise StallError once it has waited for the others past the deadline."""
        if waited >= self._limit_seconds:
            raise StallError("Shutdown", absent, waited)
        now = time.monotonic()
        if waited >= self._warn_seconds and now >= self._next:
            self._next = now + self._warn_seconds
            LOGGER.warning(
                "Rank %d: shutdown has waited %.0f s for ranks %s to shut down or submit a tensor.",
                self._rank, waited, absent,
            )  # fmt: skip
