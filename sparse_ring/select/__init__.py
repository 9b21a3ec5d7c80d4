"""Which elements of the accumulated gradient are sent now."""

from sparse_ring.select.base import Scratch, Selector
from sparse_ring.select.chunked import LargestOfChunks
from sparse_ring.select.model import ModelSelector, ModelThreshold
from sparse_ring.select.sampled import SampledTopK
from sparse_ring.select.threshold import FixedThreshold
from sparse_ring.select.topk import ExactTopK

__all__ = [
    "ExactTopK",
    "FixedThreshold",
    "LargestOfChunks",
    "ModelSelector",
    "ModelThreshold",
    "SampledTopK",
    "Scratch",
    "Selector",
]
