"""What a ring adds for the ways whose values can be summed: the values, and an element a rank that says how it fared."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sparse_ring.engine.link import Link
from sparse_ring.errors import MessageError
from sparse_ring.gradient.base import Floats

NONFINITE, FAILED = 1.0, 2.0


def summed(values: Floats | Sequence[Floats], room: int, flag: float, link: Link) -> Floats:
    """Return ``float32[room + size]``: this rank's values, zeros after them, and ``flag`` in its own place among the flags.

    flag
        0 where all is well, ``NONFINITE`` or ``FAILED``: then the values count as zeros.
    """
    travelling = np.zeros(room + link.size, dtype=np.float32)
    travelling[room + link.rank] = flag
    if flag == 0.0:
        start = 0
        for part in [values] if isinstance(values, np.ndarray) else values:
            travelling[start : start + part.size] = part.reshape(-1)
            start += part.size
    return travelling


def failures(flags: Floats, parameter: str) -> MessageError | None:
    """Return the error for the first rank that failed, from the flags of all ranks; None where none did."""
    for rank, flag in enumerate(flags):
        if flag >= FAILED:
            return MessageError("failed before it could send; its own error says why", rank=rank, parameter=parameter)
    return None
