"""Frames of every element: exact in float32, or in a value code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sparse_ring.encode import Coder, Coding
from sparse_ring.error_feedback import ErrorFeedback
from sparse_ring.gradient.base import Floats, OptimizerStep, Pipeline
from sparse_ring.gradient.framed import FramedParameter
from sparse_ring.message.frame import FRAME_HEADER
from sparse_ring.message.writer import frame_bound
from sparse_ring.observe.metrics import Metrics
from sparse_ring.recipe import MessageRecipe


class ExactParameter(FramedParameter):
    """All elements in float32, without any state: what a recipe leaves alone."""

    @property
    def final_bytes(self) -> int:
        """See :attr:`FramedParameter.final_bytes`."""
        return FRAME_HEADER.size + 4 * self.numel

    def frame_bound(self, step: int) -> int:
        """See :meth:`FramedParameter.frame_bound`."""
        return frame_bound(4 * self.numel)

    def compress_finite(
        self, gradient: Floats, step: OptimizerStep, metrics: Metrics, unit: float | None = None
    ) -> None:
        """See :meth:`FramedParameter.compress_finite`."""
        self.shared.writer.add_dense(self.number, gradient)


class CodedParameter(FramedParameter):
    """All elements in a value code; what coding loses stays in the residual, where the recipe keeps one.

    coder
        Chooses the value code; frames have no index bits.
    seed
        Of this rank's random numbers, where the code wants some.
    counted
        Whether it is one of those that the recipe compresses, in the metrics.
    """

    feedback: ErrorFeedback

    def __init__(
        self,
        shared: Pipeline,
        recipe: MessageRecipe,
        number: int,
        name: str,
        shape: tuple[int, ...],
        key: str | None = None,
        *,
        coder: Coder,
        feedback: ErrorFeedback,
        seed: int = 0,
        counted: bool = False,
    ) -> None:
        super().__init__(shared, recipe, number, name, shape, key)
        self.coder, self.feedback, self._seed, self._counted = coder, feedback, seed, counted

    @property
    def final_bytes(self) -> int:
        """See :attr:`FramedParameter.final_bytes`."""
        return FRAME_HEADER.size + self.coder.most(self.numel, self.recipe.warmup)

    def frame_bound(self, step: int) -> int:
        """See :meth:`FramedParameter.frame_bound`."""
        return frame_bound(self.coder.most(self.numel, step))

    def detail(self, step: int) -> str:
        """During the warm-up frames need more room."""
        return " in the warm-up" if step < self.recipe.warmup else ""

    @property
    def shares_unit(self) -> bool:
        """See :attr:`FramedParameter.shares_unit`."""
        return self.coder.shares_unit

    def accumulate_finite(self, gradient: Floats, step: OptimizerStep) -> float:
        """See :meth:`FramedParameter.accumulate_finite`."""
        self.feedback.accumulate(gradient, step.momentum, step.nesterov)
        if not self.shared.kernels.all_finite(self.feedback.accumulated):
            return 0.0
        return self.coder.unit(self.feedback.accumulated) or 0.0

    def compress_finite(
        self, gradient: Floats, step: OptimizerStep, metrics: Metrics, unit: float | None = None
    ) -> None:
        """See :meth:`FramedParameter.compress_finite`; with a ``unit`` the gradient was accumulated before."""
        shared, feedback = self.shared, self.feedback
        if unit is None:
            feedback.accumulate(gradient, step.momentum, step.nesterov)
        if self.overflowed(feedback, metrics):
            return
        values = feedback.accumulated
        scale = self.coder.unit(values) if unit is None else unit
        coding = Coding(seed=self._seed, step=step.number, parameter=self.number, scale=scale)
        code = self.coder.choose(values, coding, shared.kernels)
        shared.scratch.reserve(self.numel)
        decoded = shared.scratch.decoded[: self.numel]
        encoded = shared.writer.add_dense_coded(self.number, values, code, decoded)
        if self._counted:
            metrics.sparse_elements += self.numel
            metrics.kept_elements += self.numel
            metrics.value_bytes += encoded.value_bytes

    def state_dict(self) -> dict[str, Any]:
        """Return residual (or velocity) as arrays, not copied, and what the coder has chosen."""
        return {**super().state_dict(), **self.coder.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See :meth:`ParameterPipeline.load_state_dict`."""
        arrays = {name: value for name, value in state.items() if isinstance(value, np.ndarray)}
        super().load_state_dict(arrays)
        self.coder.load_state_dict({name: value for name, value in state.items() if name not in arrays})
