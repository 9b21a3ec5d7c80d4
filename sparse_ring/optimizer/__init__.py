"""``DistributedOptimizer``: any torch optimizer, stepping on gradients that all ranks share."""

from sparse_ring.optimizer.distributed import DistributedOptimizer

__all__ = ["DistributedOptimizer"]
