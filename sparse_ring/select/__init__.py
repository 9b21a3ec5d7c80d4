"""Which elements of the accumulated gradient are sent now."""

from sparse_ring.select.base import Scratch, Selector
from sparse_ring.select.topk import ExactTopK

__all__ = ["ExactTopK", "Scratch", "Selector"]
