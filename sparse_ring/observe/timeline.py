"""Where the time of a step goes: spans of this rank's threads, written as Chrome trace events while training runs.

A span is one call that costs about as much as a dictionary; a thread of its own formats and writes them, twice a second.
While nothing is recorded, a span is an attribute that is looked at. A file that cannot be written ends the recording with
one warning and never the training.

What is recorded, by track:

* training: ``forward and backward``, in it ``submit`` for each parameter (staging its gradient, handing it over), ``wait``
  in ``synchronize()``, ``optimizer step``;
* engine: each round of ``agreement``, with the bytes of data that rode with its requests; ``run`` for each bucket, in it
  ``compress``, ``decode`` of each rank's message and ``aggregate``;
* exchange: from the first byte of a bucket that leaves to the last that arrives, with the bytes sent.

Times are microseconds since rank 0 started the recording, on rank 0's clock.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from sparse_ring.observe.trace_file import Event, TraceFile

logger = logging.getLogger(__name__)

FLUSH_SECONDS = 0.5
ORIGIN = "sparse_ring"
END = "end of recording"

now = time.perf_counter_ns
"""The clock of all spans, in nanoseconds."""


class Track(IntEnum):
    """The lines that a viewer draws for a rank."""

    TRAINING = 0
    ENGINE = 1
    EXCHANGE = 2


@dataclass(frozen=True, kw_only=True)
class Clock:
    """How this rank's clock relates to rank 0's, in nanoseconds.

    origin
        When rank 0 started the recording, on its own clock.
    offset
        This rank's clock minus rank 0's.
    error
        How far the offset may be off at most: half of the quickest answer's round trip.
    run
        A number that the ranks of one recording share.
    """

    origin: int
    offset: int = 0
    error: int = 0
    run: int = 0


class Timeline:
    """The recording of one rank. Spans may come from any thread; ``start`` and ``close`` from the training thread.

    on
        Whether spans are kept.
    mark_cycles
        Each round of agreement leaves a mark in the view.
    bucket
        What the engine works on: part of the names of its spans; set by the engine's thread.
    failed
        The last recording ended because its file could not be written.
    resumed
        When the training thread last came back from this library: the start of ``forward and backward``.
    """

    def __init__(self) -> None:
        self.on = self.failed = False
        self.mark_cycles = False
        self.bucket = ""
        self.resumed = now()
        self.path = ""
        self._events: deque[tuple[Track, str, int, int | None, dict[str, Any]]] = deque()
        self._clock = Clock(origin=0)
        self._rank = 0
        self._file: TraceFile | None = None
        self._writing = threading.Lock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, path: str, rank: int, size: int, clock: Clock, mark_cycles: bool = False) -> None:
        """Record into a new file from now on; a file that cannot be made is a warning, and nothing is recorded."""
        self.path, self._rank, self._clock, self.mark_cycles = path, rank, clock, mark_cycles
        self._events.clear()
        self.failed = False
        try:
            self._file = TraceFile(path)
            self._file.append(self._head(size))
        except OSError as error:
            self._give_up(error)
            return
        self._closing.clear()
        self.resumed = now()
        self.on = True
        self._thread = threading.Thread(target=self._keep_writing, name=f"sparse_ring-timeline-{rank}", daemon=True)
        self._thread.start()

    def span(self, track: Track, name: str, began: int, **details: Any) -> None:
        """Note that ``name`` ran from ``began`` (nanoseconds of ``now()``) until now. Does nothing while off."""
        if self.on:
            self._events.append((track, name, began, now(), details))

    def work(self, name: str, began: int, track: Track = Track.ENGINE, **details: Any) -> None:
        """Note a span of the engine's thread, named after the bucket at hand as well."""
        if self.on:
            self._events.append((track, f"{name} {self.bucket}", began, now(), details))

    def mark(self, track: Track, name: str) -> None:
        """Note a moment."""
        if self.on:
            self._events.append((track, name, now(), None, {}))

    def flush(self) -> None:
        """Write what was noted so far; ends the recording where that fails."""
        with self._writing:
            if self._file is None:
                return
            events = [self._event(*self._events.popleft()) for _ in range(len(self._events))]
            try:
                self._file.append(events)
            except OSError as error:
                self._give_up(error)

    def close(self) -> None:
        """Write what is left and end the recording. May be called again."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self.mark(Track.TRAINING, END)
        self.on = False
        self._closing.set()
        thread.join()
        self.flush()
        if self._file is not None:
            self._file.close()
        self._file = None

    def _keep_writing(self) -> None:
        while not self._closing.wait(FLUSH_SECONDS):
            self.flush()

    def _give_up(self, error: OSError) -> None:
        self.on, self.failed = False, True
        if self._file is not None:
            self._file.close()
        self._file = None
        logger.warning(
            "Rank %d: the timeline cannot be written to %s (%s). It ends here; training goes on.",
            self._rank, self.path, error.strerror or error,
        )  # fmt: skip

    def _event(self, track: Track, name: str, began: int, ended: int | None, details: dict[str, Any]) -> Event:
        event: dict[str, Any] = {"name": name, "ph": "X" if ended is not None else "i", "pid": self._rank, "tid": track}
        event["ts"] = self._microseconds(began)
        if ended is None:
            event["s"] = "p"
        else:
            event["dur"] = (ended - began) / 1000
        if details:
            event["args"] = details
        return event

    def _microseconds(self, moment: int) -> float:
        return (moment - self._clock.offset - self._clock.origin) / 1000

    def _head(self, size: int) -> list[Event]:
        facts = {
            "run": self._clock.run,
            "rank": self._rank,
            "size": size,
            "clock_offset_microseconds": self._clock.offset / 1000,
            "clock_error_microseconds": self._clock.error / 1000,
        }
        name = f"rank {self._rank} on {socket.gethostname()} (clock ± {self._clock.error / 1000:.0f} µs)"
        rows: list[tuple[str, int, dict[str, Any]]] = [
            (ORIGIN, 0, facts),
            ("process_name", 0, {"name": name}),
            ("process_sort_index", 0, {"sort_index": self._rank}),
        ]
        for track in Track:
            rows.append(("thread_name", track, {"name": track.name.lower()}))
            rows.append(("thread_sort_index", track, {"sort_index": track.value}))
        return [{"name": kind, "ph": "M", "pid": self._rank, "tid": tid, "args": args} for kind, tid, args in rows]


def title(names: Sequence[str]) -> str:
    """Return what a bucket is called: its first tensor, and how many more there are."""
    return names[0] if len(names) == 1 else f"{names[0]} + {len(names) - 1} more"
