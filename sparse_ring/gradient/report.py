"""What all ways tell: which rank's gradients were not finite, and how many bytes an exchange took."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from sparse_ring.engine.link import Link
from sparse_ring.gradient.base import ParameterPipeline

logger = logging.getLogger(__name__)

MOST_NAMES = 5


def report_nonfinite(missing: Sequence[ParameterPipeline], rank: int, step: int) -> None:
    """Tell a rank's first non-finite gradients, then the 2nd, 4th, 8th, … time, so that a run of them fills no disk.

    missing
        Parameters of one optimizer whose gradient was not finite on ``rank``; none: nothing is told.
    """
    if not missing:
        return
    counts = missing[0].shared.nonfinite
    counts[rank] = counts.get(rank, 0) + 1
    if counts[rank] & (counts[rank] - 1) == 0:
        names = ", ".join(f"'{parameter.name}'" for parameter in missing[:MOST_NAMES])
        more = f" and {len(missing) - MOST_NAMES} more" if len(missing) > MOST_NAMES else ""
        logger.warning(
            "Step %d: the gradient of rank %d is not finite for %s%s; its share is left out, its residual kept (time %d).",
            step, rank, names, more, counts[rank],
        )  # fmt: skip


def count_exchange(
    parameters: Sequence[ParameterPipeline], attached_bytes: int, link: Link, sent_before: int, began: float
) -> None:
    """Count one exchange of these parameters' gradients.

    attached_bytes
        What went along with the requests, to each of the other ranks.
    sent_before, began
        ``link.metrics.sent_bytes`` and ``time.perf_counter()`` when it began.
    """
    metrics = link.metrics
    dense = 4 * sum(parameter.numel for parameter in parameters)
    metrics.dense_bytes += dense
    metrics.message_bytes += attached_bytes
    metrics.ring_bytes += 2 * (link.size - 1) / link.size * dense
    metrics.gradient_wire_bytes += metrics.sent_bytes - sent_before + attached_bytes * (link.size - 1)
    metrics.add_exchange(began)
