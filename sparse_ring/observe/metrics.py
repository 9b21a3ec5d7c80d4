"""The counters of one session: written by the engine's thread and the optimizer, read by whoever shows them."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields, replace


@dataclass(slots=True)
class Metrics:
    """Totals since ``init()``; each field has one writer, so no lock is needed.

    Transfers (written by the engine's link):

    sent_bytes, received_bytes
        Payload of all data transfers of this rank, and what rides with its requests.
    control_bytes
        Bytes sent to agree on order.

    Gradients (written by the pipeline). The *message ratio* is ``dense_bytes / message_bytes``; the *wire ratio* is
    ``ring_bytes / gradient_wire_bytes``:

    dense_bytes
        4 bytes an element of every gradient that was exchanged.
    message_bytes
        What this rank made of them: headers, indices, values and dense frames (for a dense ring: the bytes of the wire's dtype).
    ring_bytes
        What a dense float32 ring would have sent for them: ``2 * (size - 1) / size`` of ``dense_bytes``.
    gradient_wire_bytes
        What was sent for them, to all ranks.
    sparse_elements, kept_elements
        Elements of sparsely sent parameters, and how many of those were kept.
    index_bytes, value_bytes
        Coded indices and values of the kept elements.
    nonfinite_frames
        Frames of this rank that were empty because the gradient was not finite.

    Time (seconds):

    exchange_seconds
        The engine was busy with gradients: compressing, exchanging, adding.
    exposed_seconds
        Of these, while the training thread waited for them.
    waiting_seconds
        The training thread waited, for the exchange or for ranks that were not there yet.
    waiting_since
        ``time.perf_counter()`` since which it waits; 0 where it does not.
    steps
        Optimizer steps.
    """

    sent_bytes: int = 0
    received_bytes: int = 0
    control_bytes: int = 0
    dense_bytes: int = 0
    message_bytes: int = 0
    ring_bytes: float = 0.0
    gradient_wire_bytes: int = 0
    sparse_elements: int = 0
    kept_elements: int = 0
    index_bytes: int = 0
    value_bytes: int = 0
    nonfinite_frames: int = 0
    exchange_seconds: float = 0.0
    exposed_seconds: float = 0.0
    waiting_seconds: float = 0.0
    waiting_since: float = 0.0
    steps: int = 0

    @property
    def message_ratio(self) -> float:
        """Dense float32 bytes / bytes of the messages this rank made; 1 before any."""
        return self.dense_bytes / self.message_bytes if self.message_bytes else 1.0

    @property
    def wire_ratio(self) -> float:
        """Bytes a dense float32 ring would have sent / bytes sent; 1 before any."""
        return self.ring_bytes / self.gradient_wire_bytes if self.gradient_wire_bytes else 1.0

    def add_exchange(self, began: float) -> None:
        """Count an exchange of gradients that began at ``time.perf_counter()`` and ends now."""
        now, waiting_since = time.perf_counter(), self.waiting_since
        self.exchange_seconds += now - began
        if waiting_since:
            self.exposed_seconds += now - max(began, waiting_since)

    def start_waiting(self) -> None:
        """The training thread begins to wait."""
        self.waiting_since = time.perf_counter()

    def stop_waiting(self) -> None:
        """The training thread goes on."""
        self.waiting_seconds += time.perf_counter() - self.waiting_since
        self.waiting_since = 0.0

    def copy(self) -> Metrics:
        """Return the totals as they are now."""
        return replace(self)

    def since(self, earlier: Metrics) -> Metrics:
        """Return what was counted after ``earlier``, a copy of these totals."""
        return Metrics(
            **{entry.name: getattr(self, entry.name) - getattr(earlier, entry.name) for entry in fields(self)}
        )
