"""Whether it pays to send what is ready before somebody waits for it.

Each round of agreement and exchange makes all ranks meet, which costs them time that training would use: on busy cores more
than a small message takes on the wire. So ready operations are held back until sending them takes long enough to be worth
hiding; what is left goes when a caller waits for it.
"""

from __future__ import annotations

from collections import deque
from statistics import median

WORTH_SECONDS = 0.004
FIRST_BYTES_PER_SECOND = 125e6
# Less tells more of latencies than of the link.
SMALLEST_SAMPLE_BYTES = 64 << 10
# A late rank makes a link look slow, and the system's buffers make it look fast: the middle of so many is near the truth.
SAMPLES = 15


class Pace:
    """Learns how fast this rank sends; ``size`` is the number of ranks."""

    def __init__(self, size: int) -> None:
        self.bytes_per_second = FIRST_BYTES_PER_SECOND
        self._samples: deque[float] = deque(maxlen=SAMPLES)
        # A ring sends nearly twice the bytes of an array, a mesh of messages one time fewer than there are ranks.
        self._copies = min(2, size - 1)

    def note(self, sent_bytes: int, seconds: float) -> None:
        """Take note of an exchange: what it sent and how long it took, waiting included."""
        if sent_bytes >= SMALLEST_SAMPLE_BYTES and seconds > 0:
            self._samples.append(sent_bytes / seconds)
            self.bytes_per_second = median(self._samples)

    def worth_sending(self, nbytes: int) -> bool:
        """Return whether operations of so many bytes are worth a round of their own."""
        return nbytes * self._copies >= WORTH_SECONDS * self.bytes_per_second
