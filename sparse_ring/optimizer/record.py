"""One parameter of a distributed optimizer, between its backward hook and its shared gradient."""

from __future__ import annotations

import torch

from sparse_ring.engine.handle import Handle
from sparse_ring.pipeline import ParameterPipeline
from sparse_ring.plan import PlannedParameter
from sparse_ring.recipe import Recipe
from sparse_ring.views import Work


class Record:
    """A parameter's way, what is in flight of it, how often backward has reached it since the last step.

    key
        Name of its operations, unique among all optimizers of the rank.
    pipeline
        Its way through messages; None for a parameter that takes the dense ring.
    momentum, nesterov
        What the local velocity uses this step; 0 where the optimizer keeps its momentum.
    """

    def __init__(
        self, parameter: torch.Tensor, planned: PlannedParameter, key: str, pipeline: ParameterPipeline | None
    ) -> None:
        self.parameter, self.planned, self.key, self.pipeline = parameter, planned, key, pipeline
        self.momentum, self.nesterov = 0.0, False
        self.passes = 0
        self.handle: Handle | None = None
        self.work: Work | None = None
        self.hook: torch.utils.hooks.RemovableHandle | None = None

    @property
    def name(self) -> str:
        """The parameter's name, as in errors and checkpoints."""
        return self.planned.name

    @property
    def recipe(self) -> Recipe:
        """How it is compressed."""
        return self.planned.recipe

    @property
    def keeps_velocity(self) -> bool:
        """Whether its recipe accumulates momentum before the exchange."""
        return self.planned.sparse and self.recipe.takes_over_momentum
