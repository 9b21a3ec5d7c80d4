"""What error feedback is: it adds each gradient to what waits, and keeps what was not sent.

Conservation, bit for bit (contract 1 of ``docs/architecture.md``): with ``acc`` the accumulated array after
``accumulate``, ``sent`` leaves ``fl(acc - decoded)`` at the sent positions and ``acc`` elsewhere, where ``decoded`` is what
the receivers really get.

An instance belongs to one parameter of one rank; only the engine's thread changes it while a step is in flight.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sparse_ring.sparse import SparseGradient

Floats = NDArray[np.float32]
Indices = NDArray[np.uint32]


class ErrorFeedback(ABC):
    """The memory of one parameter; all arrays are ``float32[numel]``.

    accumulated
        What waits to be sent: the residual, after ``accumulate`` the sum from which is selected.
    compensates
        Whether it corrects for gradients being stale, and so wants to hear of each aggregate.
    """

    accumulated: Floats
    compensates: bool = False

    @abstractmethod
    def accumulate(self, gradient: Floats, momentum: float, nesterov: bool) -> None:
        """Add this step's gradient. ``momentum`` is used only by variants that keep a velocity."""

    @abstractmethod
    def accumulate_select(
        self, gradient: Floats, momentum: float, nesterov: bool, threshold: float, indices: Indices, values: Floats
    ) -> int:
        """``accumulate`` fused with the selection of ``|accumulated| >= threshold``, in one pass over memory.

        Arrays and return value as :meth:`sparse_ring.kernels.base.Kernels.select`.
        """

    @abstractmethod
    def sent(self, decoded: SparseGradient) -> None:
        """Take note of what was sent, as the receivers see it: ``decoded`` has the positions and the values after coding."""

    @abstractmethod
    def sent_all(self, decoded: Floats) -> None:
        """Take note that the whole of ``accumulated`` was sent and that receivers see ``decoded`` (``float32[numel]``)."""

    def aggregated(  # noqa: B027
        self,
        aggregate: Floats,
        touched: Sequence[Indices],
        learning_rate: float,
        momentum: float = 0.0,
        part: float = 1.0,
    ) -> None:
        """Take note of what all ranks together sent, where ``compensates``; called after ``sent``.

        aggregate
            ``float32[numel]``, as the optimizer will see it.
        touched
            Positions that each rank sent, in which the aggregate may differ from zero; empty after a dense stage: all of them.
        learning_rate
            With which the optimizer will apply it.
        momentum
            The optimizer's coefficient, where the recipe has taken it over.
        part
            What of the aggregate is this rank's, where all ranks add some of it to what waits: 1 under Average, 1/P under Sum.
        """

    def residual_norm(self) -> float:
        """Return the Euclidean norm of what was not sent yet."""
        return float(np.linalg.norm(self.accumulated))

    @abstractmethod
    def drop_nonfinite(self) -> int:
        """Set to zero what has overflowed; returns in how many positions."""

    @abstractmethod
    def state_dict(self) -> dict[str, Floats]:
        """Return the arrays by name, not copied."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Floats]) -> None:
        """Take over copies of the arrays by name; names that are missing become zeros."""


def dropped(*arrays: Floats | None) -> int:
    """Set all arrays to zero where any of them is not finite; returns in how many positions."""
    present = [array for array in arrays if array is not None]
    bad = ~np.logical_and.reduce([np.isfinite(array) for array in present])
    for array in present:
        array[bad] = 0.0
    return int(bad.sum())


def restored(state: Mapping[str, Floats], name: str, numel: int) -> Floats:
    """Return a float32 copy of ``state[name]``, or zeros; raises ValueError for another number of elements."""
    if name not in state:
        return np.zeros(numel, dtype=np.float32)
    array = np.array(state[name], dtype=np.float32).reshape(-1)
    if array.size != numel:
        raise ValueError(f"{name} has {array.size} elements, but the parameter has {numel}.")
    return array
