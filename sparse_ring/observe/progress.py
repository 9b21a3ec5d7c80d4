"""The line on rank 0 that tells how training goes, and the table at its end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Protocol, SupportsFloat, TextIO

from sparse_ring.config import Config
from sparse_ring.observe.metrics import Metrics
from sparse_ring.observe.summary import Column, short, summary_table

INTERVAL_SECONDS = 1.0
PLAIN_INTERVAL_SECONDS = 10.0


class Observed(Protocol):
    """What of a session is looked at."""

    rank: int
    size: int
    config: Config
    metrics: Metrics


class Progress:
    """Shows a line from ``step()`` calls, on rank 0's stderr, and the table at the end.

    ``SPARSE_RING_PROGRESS`` 1 shows them always, 0 never; ``auto`` where stderr is a terminal or ``sparse-ring-run`` shows
    it. Under ``sparse-ring-run`` a line comes at most once a second and ends in a carriage return, so that the launcher shows the
    next one in its place; elsewhere others write to the terminal, too, so it is a whole line every 10 s. ``clock`` gives seconds.
    """

    def __init__(
        self, session: Observed, *, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._session, self._clock = session, clock
        self._stream = sys.stderr if stream is None else stream
        setting, launched = session.config.progress, bool(session.config.launcher)
        wanted = setting == "1" or (setting == "auto" and (self._stream.isatty() or launched))
        self.enabled = wanted and session.rank == 0
        self._interval, self._end = (INTERVAL_SECONDS, "\r") if launched else (PLAIN_INTERVAL_SECONDS, "\n")
        self._started_at = self._shown_at = clock()
        self._steps = self._shown_steps = 0
        self._shown_waiting = 0.0
        self._warm: tuple[Metrics, int, float] | None = None

    def warmed_up(self) -> None:
        """Count from here on a second time, for the table's column after the recipe's warm-up."""
        self._warm = (self._session.metrics.copy(), self._steps, self._clock())

    def step(self, loss: SupportsFloat | None = None) -> None:
        """Count one optimizer step and show the line where it is time; ``loss`` is shown where it is given."""
        self._steps += 1
        now = self._clock()
        if self._steps == 1:
            # What came before is imports, data and the first step's own start.
            self._started_at = self._shown_at = now
            self._shown_steps, self._shown_waiting = 1, self._session.metrics.waiting_seconds
        elif self.enabled and now - self._shown_at >= self._interval:
            self._show(now, loss)

    def close(self, _: object = None) -> None:
        """Write the table. Takes what ``Session.on_close`` passes; does nothing twice."""
        if self.enabled and self._steps:
            self._stream.write(f"{summary_table(self._columns(), self._session.size)}\n")
            self._stream.flush()
        self.enabled = False

    def _columns(self) -> list[Column]:
        metrics, now = self._session.metrics, self._clock()
        columns = [Column("whole run", metrics, now - self._started_at)]
        if self._warm is not None and self._steps > self._warm[1]:
            earlier, steps, clock = self._warm
            columns.append(Column(f"after {steps} warm-up steps", metrics.since(earlier), now - clock))
        return columns

    def _show(self, now: float, loss: SupportsFloat | None) -> None:
        metrics, steps = self._session.metrics, self._steps - self._shown_steps
        waited = (metrics.waiting_seconds - self._shown_waiting) / steps
        parts = [f"step {self._steps}", f"{steps / (now - self._shown_at):.1f} steps/s"]
        parts += [f"loss {float(loss):.4g}"] if loss is not None else []
        parts += [f"message ratio {short(metrics.message_ratio)}", f"waited {waited * 1e3:.1f} ms/step"]
        self._stream.write(" · ".join(parts) + self._end)
        self._stream.flush()
        self._shown_at, self._shown_steps, self._shown_waiting = now, self._steps, metrics.waiting_seconds
