"""The Horovod-shaped namespace: ``import sparse_ring.torch as hvd``.

Scripts written for ``horovod.torch`` change this import and, to compress, the ``compression=`` of ``DistributedOptimizer``.
Importing starts neither MPI nor a thread; ``init()`` does.
"""

from __future__ import annotations

from typing import Any

from sparse_ring.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from sparse_ring.errors import SparseRingError as HorovodInternalError
from sparse_ring.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
    parameter_hash,
)
from sparse_ring.observing import report, start_timeline, stop_timeline
from sparse_ring.ops import (
    Average,
    Max,
    Min,
    Sum,
    allgather,
    allgather_async,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    barrier,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    poll,
    synchronize,
)
from sparse_ring.optimizer import DistributedOptimizer
from sparse_ring.recipe import BF16, RECIPES, Dense, GradSA, Recipe, TopK
from sparse_ring.session import (
    cross_rank,
    cross_size,
    init,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
)


def __getattr__(name: str) -> Any:
    """Return any other recipe by its name, such as ``hvd.PowerSGD``."""
    for recipe in RECIPES.values():
        if recipe.__name__ == name:
            return recipe
    raise AttributeError(f"module 'sparse_ring.torch' has no attribute {name!r}.")


class _Known(type):
    def __getattr__(cls, name: str) -> Recipe:
        if name not in RECIPES:
            raise AttributeError(f"There is no Compression.{name}; there are {', '.join(RECIPES)} and none.")
        return RECIPES[name]()


class Compression(metaclass=_Known):
    """Horovod's way to name a compression: ``compression=Compression.fp16``; any recipe's name, with its defaults."""

    none = Dense()


__all__ = [
    "BF16",
    "Average",
    "CheckpointError",
    "Compression",
    "Dense",
    "DistributedOptimizer",
    "GradSA",
    "HorovodInternalError",
    "Max",
    "Min",
    "Sum",
    "TopK",
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "cross_rank",
    "cross_size",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "init",
    "is_initialized",
    "load_checkpoint",
    "local_rank",
    "local_size",
    "parameter_hash",
    "poll",
    "rank",
    "report",
    "save_checkpoint",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
    "synchronize",
]
