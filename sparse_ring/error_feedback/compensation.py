"""What compensation is: it makes what waits in a residual look like a gradient at today's weights.

What waits was computed some steps ago, at other weights, and the other ranks have moved on since. A residual is given a tuple of
compensations, which run in that order once all ranks have read what was sent, on the engine's thread. GradSA's paper (GPC 2020)
says that gradients which wait are stale and that the history of approximated gradients makes up for it; it has no formulas, so
all that is here is our reconstruction. ``docs/algorithms.md`` says what of it is published elsewhere.

Conservation becomes: accumulated = residual + what compensation has added + input.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from sparse_ring.error_feedback.base import Floats, Indices


@dataclass(frozen=True, slots=True)
class Applied:
    """The step just done.

    aggregate
        ``float32[numel]``, as the optimizer will see it; the same on all ranks.
    touched
        Positions at which it may differ from zero, those of each rank one after the other, so that some may come more than once;
        None: all.
    sent
        Positions that this rank sent; None: all.
    learning_rate
        The optimizer will subtract ``learning_rate * aggregate`` from the weights. (What Adam and its like do instead is not
        looked at.)
    momentum
        The optimizer's coefficient, where the recipe has taken it over; else 0.
    part
        This rank's part of the aggregate where what all ranks add to their residuals is to add up to it: 1 under Average, 1/P
        under Sum.
    """

    aggregate: Floats
    touched: Indices | None
    sent: Indices | None
    learning_rate: float
    momentum: float
    part: float = 1.0


class Compensation(ABC):
    """One way to make up for staleness: the state of one parameter on one rank."""

    @abstractmethod
    def apply(self, residual: Floats, applied: Applied) -> None:
        """Change ``residual`` (``float32[numel]``) in place. What would not be finite is left as it is."""

    def state_dict(self) -> dict[str, Floats]:
        """Return the arrays by name, not copied."""
        return {}

    def load_state_dict(self, state: Mapping[str, Floats], numel: int) -> None:  # noqa: B027
        """Take over copies of the arrays by name; names that are missing start afresh."""
