"""The records of a run as TensorBoard scalars, by optimizer step."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

from sparse_ring.errors import SparseRingError

MISSING = (
    "SPARSE_RING_TENSORBOARD is set, but tensorboard is not installed: pip install 'sparse-ring[report]', or unset it."
)


class TensorBoard:
    """Writes what is a number in each record, one scalar a name: ``sparse_ring/density``, ``reported/loss``, …

    path
        The folder of the event files; tensorboard itself is loaded here, not before.
    """

    def __init__(self, path: str) -> None:
        self.check()
        from torch.utils.tensorboard import SummaryWriter

        self.path = path
        writer: Any = SummaryWriter
        self._writer = writer(path)

    @staticmethod
    def check() -> None:
        """Raise SparseRingError where tensorboard is not installed."""
        if importlib.util.find_spec("tensorboard") is None:
            raise SparseRingError(MISSING)

    def write(self, record: Mapping[str, Any]) -> None:
        """Add a record; one without ``step`` (a header) holds no scalars."""
        if "step" not in record:
            return
        scalars = {f"sparse_ring/{name}": value for name, value in record.items() if name not in ("step", "time")}
        scalars |= {f"reported/{name}": value for name, value in scalars.pop("sparse_ring/reported").items()}
        for name, value in scalars.items():
            if value is not None:
                self._writer.add_scalar(name, float(value), record["step"], walltime=record["time"])
        self._writer.flush()

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()
