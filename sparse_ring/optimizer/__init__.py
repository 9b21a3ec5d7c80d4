"""``DistributedOptimizer``: any torch optimizer, stepping on gradients that all ranks share."""

from sparse_ring.optimizer.wrapping import DistributedOptimizer

__all__ = ["DistributedOptimizer"]
