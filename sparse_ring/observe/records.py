"""Metrics over time: one JSON object a line (JSONL), so that they can be read while training runs and after a crash.

A run starts with a header and goes on with records; a file that exists is appended to, so that a resumed run follows the
one before. All numbers are this rank's own; counts, bytes and seconds are of the steps since the record before:

header
    ``format`` (1), ``rank``, ``size`` (number of ranks), ``started`` (Unix time, seconds).
step
    Optimizer steps since ``init()``, those of all optimizers counted.
time
    Unix time, seconds.
steps, seconds
    What the record is about: so many steps, which took so long. The first record of a run is about the first step and all
    that came before it since ``init()`` (loading data, building the model).
exchange_seconds, exposed_seconds, waiting_seconds
    Of these: the engine was busy with gradients; the part of that for which the training thread waited; it waited at all.
message_ratio, wire_ratio
    Dense float32 bytes / bytes of this rank's messages; bytes that a dense float32 ring would send / bytes sent.
dense_bytes, message_bytes, ring_bytes, gradient_wire_bytes, control_bytes
    As in :class:`~sparse_ring.observe.metrics.Metrics`.
sparse_elements, kept_elements, index_bytes, value_bytes, nonfinite_frames
    As there.
density
    Kept / total elements of sparse parameters; null where there were none.
index_bits, value_bits
    Bits a kept element; null where none was kept.
warmed_up
    The recipe's warm-up was over when these steps began; false throughout for a recipe without one.
reported
    What ``report()`` was told since the record before, by name (``loss``, …); null for a number that is not finite.
residual_norm
    With ``SPARSE_RING_METRICS_RESIDUAL`` only: of the residuals of the optimizer that took the last of these steps; not in
    the record that ends a run.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Protocol

from sparse_ring.config import Config
from sparse_ring.observe.metrics import Metrics
from sparse_ring.observe.reported import Reported
from sparse_ring.observe.tensorboard import TensorBoard

logger = logging.getLogger(__name__)

FORMAT = 1
COPIED = (
    "steps", "exchange_seconds", "exposed_seconds", "waiting_seconds", "dense_bytes", "message_bytes", "ring_bytes",
    "gradient_wire_bytes", "control_bytes", "sparse_elements", "kept_elements", "index_bytes", "value_bytes",
    "nonfinite_frames",
)  # fmt: skip

Record = dict[str, Any]


class Writer(Protocol):
    """Somewhere to keep records. Methods raise OSError where that fails.

    path
        Where, for people.
    """

    path: str

    def write(self, record: Record) -> None:
        """Keep a record; afterwards a reader sees it."""

    def close(self) -> None:
        """Let go of the file."""


class Observed(Protocol):
    """What of a session is recorded."""

    rank: int
    size: int
    config: Config
    metrics: Metrics
    reported: Reported


class JsonLines:
    """Appends records to a file, each written at once; starts on a line of its own after a run that was killed."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = open(path, "a+b", buffering=0)  # noqa: SIM115 (kept open between records)
        if self._file.tell():
            self._file.seek(-1, os.SEEK_END)
            self._torn = self._file.read(1) != b"\n"
        else:
            self._torn = False

    def write(self, record: Record) -> None:
        """Add a line; null stands for numbers that are not finite."""
        line = json.dumps(_without_nonfinite(record), separators=(",", ":"), allow_nan=False) + "\n"
        view = memoryview((b"\n" if self._torn else b"") + line.encode())
        self._torn = False
        while view:
            view = view[self._file.write(view) :]

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Records:
    """Makes a record when it is time, from ``step()`` calls, and gives it to the writers that the settings name.

    A writer that fails is a warning and is left out from then on. ``clock`` gives seconds, ``wall`` Unix time.

    Raises SparseRingError, on every rank, where TensorBoard is wanted but not installed.
    """

    def __init__(
        self,
        session: Observed,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._session, self._clock, self._wall = session, clock, wall
        self._writers: list[Writer] = []
        self._warm = False
        config = session.config
        self._seconds = config.metrics_seconds or math.inf
        self._steps = config.metrics_steps or math.inf
        if config.metrics and (session.rank == 0 or "%r" in config.metrics):
            self._add(JsonLines, config.metrics.replace("%r", str(session.rank)))
        if config.tensorboard:
            TensorBoard.check()
            if session.rank == 0:
                self._add(TensorBoard, config.tensorboard)
        self._before, self._at = session.metrics.copy(), clock()
        self._stepped_at = self._at
        self._each({"format": FORMAT, "rank": session.rank, "size": session.size, "started": round(wall(), 3)})

    def step(self, residual_norm: Callable[[], float]) -> None:
        """Make a record where it is time, and after the first step; ``residual_norm`` is called where the settings want it."""
        if not self._writers:
            return
        self._stepped_at = self._clock()
        steps = self._session.metrics.steps - self._before.steps
        first = self._before.steps == 0
        if first or steps >= self._steps or self._stepped_at - self._at >= self._seconds:
            self._record(residual_norm)

    def warmed_up(self, residual_norm: Callable[[], float]) -> None:
        """Let a record end here, so that none holds steps of the recipe's warm-up and others."""
        if self._session.metrics.steps > self._before.steps:
            self._record(residual_norm)
        self._warm = True

    def close(self, _: object = None) -> None:
        """Record the last steps. Takes what ``Session.on_close`` passes; does nothing twice."""
        if self._session.metrics.steps > self._before.steps:
            self._record(None)
        for writer in self._writers:
            writer.close()
        self._writers = []

    def _record(self, residual_norm: Callable[[], float] | None) -> None:
        if not self._writers:
            return
        # The record that ends a run must not count what the job did after its last step.
        metrics, now = self._session.metrics.copy(), self._stepped_at
        part = metrics.since(self._before)
        totals, kept, sparse = asdict(part), part.kept_elements, part.sparse_elements
        record: Record = {"step": metrics.steps, "time": round(self._wall(), 3), "seconds": now - self._at}
        record |= {name: totals[name] for name in COPIED}
        record |= {
            "message_ratio": part.message_ratio,
            "wire_ratio": part.wire_ratio,
            "density": kept / sparse if sparse else None,
            "index_bits": 8 * part.index_bytes / kept if kept else None,
            "value_bits": 8 * part.value_bytes / kept if kept else None,
            "warmed_up": self._warm,
            "reported": self._session.reported.take(),
        }
        if residual_norm is not None and self._session.config.metrics_residual:
            record["residual_norm"] = residual_norm()
        self._before, self._at = metrics, now
        self._each(record)

    def _add(self, kind: Callable[[str], Writer], path: str) -> None:
        try:
            self._writers.append(kind(path))
        except OSError as error:
            self._warn(path, error)

    def _each(self, record: Record) -> None:
        for writer in list(self._writers):
            try:
                writer.write(record)
            except OSError as error:
                self._writers.remove(writer)
                self._warn(writer.path, error)
                with suppress(OSError):
                    writer.close()

    def _warn(self, path: str, error: OSError) -> None:
        logger.warning(
            "Rank %d: metrics cannot be written to %s (%s). They end here; training goes on.",
            self._session.rank, path, error.strerror or error,
        )  # fmt: skip


def _without_nonfinite(value: Any) -> Any:
    """Return nested dicts with null for numbers that JSON cannot hold."""
    if isinstance(value, dict):
        return {name: _without_nonfinite(entry) for name, entry in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
