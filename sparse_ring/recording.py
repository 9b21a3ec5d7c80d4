"""Starts and ends the timeline of a job: all ranks together, one file a rank, joined on rank 0."""

from __future__ import annotations

import logging
import os

from sparse_ring.engine.engine import Engine
from sparse_ring.exchange.clock import ClockComparison
from sparse_ring.observe.merge import merge, part_of
from sparse_ring.observe.timeline import Clock, Timeline

logger = logging.getLogger(__name__)


class Recording:
    """One rank's part in recordings of the job, one after the other."""

    def __init__(self, timeline: Timeline, engine: Engine) -> None:
        self._timeline, self._engine = timeline, engine
        self._path = ""
        self._clock = Clock(origin=0)

    def start(self, path: str, mark_cycles: bool) -> None:
        """Compare clocks and let this rank write ``path.rank<rank>``. Collective: every rank calls it.

        Raises ValueError while a recording runs.
        """
        if self._path:
            raise ValueError(f"The timeline is being recorded to {self._path}; call stop_timeline() first.")
        self._clock = self._engine.submit(ClockComparison("sparse_ring.timeline.clock")).wait()
        self._path = path
        part = part_of(path, self._engine.rank)
        self._timeline.start(part, self._engine.rank, self._engine.size, self._clock, mark_cycles)

    def close(self) -> None:
        """Write what is left of this rank's file. Local."""
        self._timeline.close()

    def join(self) -> None:
        """On rank 0, join the files of all ranks, which have closed theirs. Failures are warnings."""
        path, self._path = self._path, ""
        if not path or self._engine.rank != 0 or self._timeline.failed:
            return
        try:
            merged = merge(path, self._engine.size, self._clock.run)
        except OSError as error:
            logger.warning(
                "The timelines of the ranks cannot be joined in %s (%s); they stay as %s, ….",
                path, error.strerror or error, part_of(path, 0),
            )  # fmt: skip
            return
        if merged.missing:
            logger.warning(
                "%s has no timeline of ranks %s: no %s, … of this run here. Where they were written on other hosts, copy them "
                "beside the others; then: python -m sparse_ring.observe.merge %s",
                path, list(merged.missing), os.path.basename(part_of(path, merged.missing[0])), path,
            )  # fmt: skip
        if merged.unfinished:
            logger.warning("%s: the timelines of ranks %s have no end.", path, list(merged.unfinished))
