"""Frames of selected elements: their positions and values, coded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sparse_ring.error_feedback import ErrorFeedback
from sparse_ring.gradient.base import Floats, OptimizerStep, Pipeline
from sparse_ring.gradient.framed import FramedParameter
from sparse_ring.message.frame import FRAME_HEADER
from sparse_ring.message.writer import frame_bound
from sparse_ring.observe.metrics import Metrics
from sparse_ring.recipe import SelectingRecipe
from sparse_ring.select import ModelSelector, ModelThreshold, Selector


class SelectedParameter(FramedParameter):
    """Accumulates, selects about ``recipe.keep`` elements and codes them; a dense frame where all are kept."""

    feedback: ErrorFeedback

    def __init__(
        self,
        shared: Pipeline,
        recipe: SelectingRecipe,
        number: int,
        name: str,
        shape: tuple[int, ...],
        key: str | None = None,
    ) -> None:
        super().__init__(shared, recipe, number, name, shape, key)
        self.selecting_recipe, self.codec = recipe, recipe.codec
        self.feedback = recipe.error_feedback(self.numel, shared.kernels)
        self.selector: Selector
        if recipe.whole_model:
            self.selector = ModelSelector(shared.thresholds.setdefault(recipe, ModelThreshold()))
        else:
            self.selector = recipe.selector()
        self._clip_norm = recipe.clip_norm(shared.size)

    def detail(self, step: int) -> str:
        """How many elements are kept changes during the warm-up, and with it the room that a message needs."""
        return f" keep={self.selecting_recipe.keep(self.numel, step)} at this step"

    @property
    def final_bytes(self) -> int:
        """See :attr:`FramedParameter.final_bytes`: at the final density, to which ranks at different steps agree."""
        return FRAME_HEADER.size + 4 * self.selecting_recipe.keep(self.numel, self.selecting_recipe.warmup)

    def frame_bound(self, step: int) -> int:
        """See :meth:`FramedParameter.frame_bound`."""
        keep = self.selecting_recipe.keep(self.numel, step)
        if keep == self.numel:
            return frame_bound(4 * self.numel)
        return frame_bound(self.codec.most(self.selector.most(keep, self.numel), self.numel))

    def compress_finite(
        self, gradient: Floats, step: OptimizerStep, metrics: Metrics, unit: float | None = None
    ) -> None:
        """See :meth:`FramedParameter.compress_finite`."""
        keep = self.selecting_recipe.keep(self.numel, step.number)
        if self._clip_norm is not None:
            clip(gradient, self._clip_norm)
        metrics.sparse_elements += self.numel
        if keep < self.numel:
            self._compress_sparse(gradient, step, keep, metrics)
        else:
            self._compress_dense(gradient, step, metrics)

    def _compress_sparse(self, gradient: Floats, step: OptimizerStep, keep: int, metrics: Metrics) -> None:
        kernels, scratch = self.shared.kernels, self.shared.scratch
        sparse = self.selector.select(self.feedback, gradient, step.momentum, step.nesterov, keep, kernels, scratch)
        if not kernels.all_finite(sparse.values):
            self.drop_overflow()
            self.add_nonfinite(metrics)
            return
        decoded = scratch.decoded[: sparse.count]
        codec = self.codec.choose(sparse, kernels)
        encoded = self.shared.writer.add_sparse(self.number, sparse, codec, decoded)
        metrics.kept_elements += sparse.count
        metrics.index_bytes += encoded.index_bytes
        metrics.value_bytes += encoded.value_bytes

    def _compress_dense(self, gradient: Floats, step: OptimizerStep, metrics: Metrics) -> None:
        self.feedback.accumulate(gradient, step.momentum, step.nesterov)
        if self.overflowed(self.feedback, metrics):
            return
        self.shared.writer.add_dense(self.number, self.feedback.accumulated)
        metrics.kept_elements += self.numel
        metrics.value_bytes += 4 * self.numel

    def state_dict(self) -> dict[str, Any]:
        """Return residual (and velocity) as arrays, not copied, and the selector's numbers."""
        return {**super().state_dict(), **self.selector.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See :meth:`ParameterPipeline.load_state_dict`."""
        arrays = {name: value for name, value in state.items() if isinstance(value, np.ndarray)}
        super().load_state_dict(arrays)
        self.selector.load_state_dict({name: value for name, value in state.items() if name not in arrays})


def clip(gradient: Floats, most: float) -> None:
    """Scale a finite gradient, in place, so that its Euclidean norm is at most ``most``."""
    norm = float(np.linalg.norm(gradient))
    if not np.isfinite(norm):
        # Squares beyond float32.
        norm = float(np.linalg.norm(gradient.astype(np.float64)))
    if norm > most:
        np.multiply(gradient, np.float32(most / norm), out=gradient)
