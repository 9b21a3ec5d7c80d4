"""What a training loop tells and asks of a run's observers: its loss, and a timeline of some of its steps."""

from __future__ import annotations

from typing import SupportsFloat

import torch

from sparse_ring.ops import barrier
from sparse_ring.session import Session, current


def report(*, session: Session | None = None, **values: SupportsFloat) -> None:
    """Tell numbers of this step, by name: ``hvd.report(loss=loss)``.

    ``loss`` is shown in the progress line; each name's last value goes into the next record of the metrics
    (``SPARSE_RING_METRICS``, ``SPARSE_RING_TENSORBOARD``), and names that contain ``loss`` into the report's plot. Local:
    nothing is sent, and only rank 0's are shown. Cheap at each step: a tensor of one element is kept as it is, detached,
    and read only where it is shown or recorded, so it must not be changed in place.

    Raises ValueError for a tensor of more elements.
    """
    session = session or current()
    told: dict[str, SupportsFloat] = {}
    for name, value in values.items():
        if isinstance(value, torch.Tensor):
            if value.numel() != 1:
                raise ValueError(
                    f"report({name}=…): a tensor of shape {tuple(value.shape)} is no number; give its mean."
                )
            value = value.detach()
        told[name] = value
    session.reported.update(told)


def start_timeline(file_path: str, mark_cycles: bool = False, session: Session | None = None) -> None:
    """Record what all ranks do from now on, for ``chrome://tracing`` or Perfetto. Collective: every rank calls it.

    file_path
        What rank 0 writes at ``stop_timeline()`` or at the end of the job; until then each rank writes
        ``<file_path>.rank<rank>``, whole at every moment. A file that cannot be written is one warning.
    mark_cycles
        Mark each round of agreement as well.

    Raises ValueError while a timeline is being recorded.
    """
    session = session or current()
    session.check()
    session.recording.start(file_path, mark_cycles)


def stop_timeline(session: Session | None = None) -> None:
    """End the recording; afterwards rank 0 has joined the ranks' files. Collective: every rank calls it."""
    session = session or current()
    session.recording.close()
    # All files are closed before they are joined, and joined before anybody looks.
    barrier(session)
    session.recording.join()
    barrier(session)
