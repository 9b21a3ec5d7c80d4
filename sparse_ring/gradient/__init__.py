"""A gradient's way to the other ranks and back, one parameter at a time; ``base.py`` has the contract."""

from __future__ import annotations

from sparse_ring.gradient.base import GradientOperation, OptimizerStep, ParameterPipeline, Pipeline
from sparse_ring.gradient.ways import pipeline_of

__all__ = ["GradientOperation", "OptimizerStep", "ParameterPipeline", "Pipeline", "pipeline_of"]
