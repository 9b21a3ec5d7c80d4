"""What a ring adds for the ways whose values can be summed: the values, and two elements a rank that say how it fared and when."""

from __future__ import annotations

import numpy as np

from sparse_ring.engine.link import Link
from sparse_ring.errors import MessageError
from sparse_ring.gradient.base import Floats

NONFINITE, FAILED = 1.0, 2.0
# Steps are told modulo this, which float32 holds exactly.
_STEPS = 1 << 24


def summed(values: Floats, room: int, flag: float, step: int, link: Link) -> Floats:
    """Return ``float32[room + 2 * size]``: this rank's values, zeros after them, ``flag`` and ``step`` in places of its own.

    flag
        0 where all is well, ``NONFINITE`` or ``FAILED``: then the values count as zeros.
    """
    travelling = np.zeros(room + 2 * link.size, dtype=np.float32)
    travelling[room + link.rank] = flag
    travelling[room + link.size + link.rank] = step % _STEPS
    if flag == 0.0:
        travelling[: values.size] = values
    return travelling


def flags_of(total: Floats, room: int, link: Link) -> Floats:
    """Return every rank's flag, from what the ring has added."""
    return total[room : room + link.size]


def failures(total: Floats, room: int, step: int, link: Link, parameter: str) -> MessageError | None:
    """Return the error for the first rank that failed or is at another step; None where all fared well."""
    for rank, flag in enumerate(flags_of(total, room, link)):
        if flag >= FAILED:
            return MessageError("failed before it could send; its own error says why", rank=rank, parameter=parameter)
    for rank, its in enumerate(total[room + link.size :]):
        if int(its) != step % _STEPS:
            reason = f"is of step {int(its)}, but this rank is at {step}: resume all ranks from one checkpoint"
            return MessageError(reason, rank=rank, parameter=parameter)
    return None
