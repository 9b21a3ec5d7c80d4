"""One parameter of a distributed optimizer, between its backward hook and its shared gradient."""

from __future__ import annotations

import torch

from sparse_ring.engine.handle import Handle
from sparse_ring.gradient import ParameterPipeline
from sparse_ring.plan import PlannedParameter
from sparse_ring.recipe import Recipe
from sparse_ring.views import Work


class Record:
    """A parameter's way, what is in flight of it, how often backward has reached it since the last step.

    name, recipe
        The parameter's name, as in errors and checkpoints, and how it is compressed.
    key
        Name of its operations, unique among all optimizers of the rank.
    pipeline
        Its way to the other ranks; None for a parameter that takes the dense ring.
    at_step
        What is in flight was handed over by ``step()``, not during backward.
    momentum, nesterov
        What the local velocity uses this step; 0 where the optimizer keeps its momentum.
    learning_rate
        With which the optimizer will apply the aggregate.
    """

    def __init__(
        self, parameter: torch.Tensor, planned: PlannedParameter, key: str, pipeline: ParameterPipeline | None
    ) -> None:
        self.parameter, self.planned, self.key, self.pipeline = parameter, planned, key, pipeline
        self.name: str = planned.name
        self.recipe: Recipe = planned.recipe
        self.momentum, self.nesterov, self.learning_rate = 0.0, False, 0.0
        self.passes = 0
        self._seen: tuple[torch.Tensor, int] | None = None
        self.handle: Handle | None = None
        self.at_step = False
        self.work: Work | None = None
        self.hook: torch.utils.hooks.RemovableHandle | None = None

    @property
    def keeps_velocity(self) -> bool:
        """Whether its recipe accumulates momentum before the exchange."""
        return self.planned.compressed and self.recipe.takes_over_momentum

    def see_gradient(self) -> None:
        """Note the gradient as backward has left it."""
        gradient = self.parameter.grad
        self._seen = None if gradient is None else (gradient, gradient._version)

    def forget_gradient(self) -> None:
        """The gradient has been shared: what happens to it now is the user's."""
        self._seen = None

    def gradient_was_changed(self) -> bool:
        """Return whether somebody has replaced or written to the gradient since (the engine's own writes do not count)."""
        if self._seen is None:
            return False
        gradient, version = self._seen
        return self.parameter.grad is not gradient or gradient._version != version
