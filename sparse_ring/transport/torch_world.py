"""Jobs of torch.distributed: started by torchrun, or joined by the script's own ``init_process_group``.

Ranks meet in torch's store, under keys of their own, and connect with a gloo group of their own (``c10d.py``). The default process
group is neither used nor made: a script may make it before or after ``init()``, over any backend, and destroy it.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from sparse_ring.config import Config
from sparse_ring.errors import SparseRingError
from sparse_ring.transport.base import Transport

PREFIX = "sparse_ring"
# In the store: the rank that has aborted the job.
GONE_KEY = "gone"
STORE_SECONDS = 600.0


class _World(NamedTuple):
    store: Any
    rank: int
    size: int


_by_variables: _World | None = None
_current: _World | None = None
# How often each list of ranks has been connected: equal in all of them, so that no key is used twice.
_connected: Counter[tuple[int, ...]] = Counter()


def is_initialized() -> bool:
    """Return whether the script has initialised torch.distributed."""
    dist: Any = sys.modules.get("torch.distributed")
    return dist is not None and dist.is_available() and dist.is_initialized()


def is_process_group(comm: Any) -> bool:
    """Return whether ``comm`` is a process group of torch.distributed."""
    dist: Any = sys.modules.get("torch.distributed")
    return dist is not None and dist.is_available() and isinstance(comm, dist.ProcessGroup)


def joined_by_others() -> bool:
    """Return whether this process has joined a job of several ranks."""
    return _current is not None and _current.size > 1


def join() -> _World:
    """Find the job's store; with torchrun's variables, waits until all ranks have come to it.

    Raises SparseRingError where they do not come within ten minutes.
    """
    global _current, _by_variables
    if is_initialized():
        import torch.distributed as distributed

        dist: Any = distributed
        store = dist.PrefixStore(PREFIX, dist.distributed_c10d._get_default_store())
        _current = _World(store, dist.get_rank(), dist.get_world_size())
    else:
        _by_variables = _by_variables or _rendezvous()
        _current = _by_variables
    return _current


def transport(comm: Any = None, config: Config | None = None) -> Transport:
    """Return a transport among all ranks, a sequence of them, or those of a process group.

    Raises ValueError for ranks that do not exist, repeat, or leave out this one.
    """
    import torch.distributed as distributed

    from sparse_ring.transport.c10d import C10dTransport

    dist: Any = distributed
    world = join()
    ranks = list(range(world.size))
    if isinstance(comm, Sequence):
        ranks = list(comm)
    elif comm is not None:
        ranks = dist.get_process_group_ranks(comm)
    check_ranks(ranks, world.rank, world.size)
    _connected[tuple(ranks)] += 1
    store = dist.PrefixStore(f"{'-'.join(map(str, ranks))}/{_connected[tuple(ranks)]}", world.store)

    def gone() -> int | None:
        number = int(world.store.get(GONE_KEY)) if world.store.check([GONE_KEY]) else None
        return ranks.index(number) if number in ranks else None

    return C10dTransport(store, ranks.index(world.rank), len(ranks), config=config, gone=gone)


def abort(code: int) -> None:
    """End this process; ranks that are not connected with it yet find its number in the store."""
    from sparse_ring.transport.c10d import end_process

    if _current is not None:
        with contextlib.suppress(Exception):
            _current.store.set(GONE_KEY, str(_current.rank))
    end_process(code)


def check_ranks(ranks: Sequence[int], own: int, size: int) -> None:
    """Raise ValueError for ranks that do not exist, repeat, or leave out the caller's own."""
    ranks = list(ranks)
    if len(set(ranks)) != len(ranks) or not all(isinstance(rank, int) and 0 <= rank < size for rank in ranks):
        raise ValueError(f"comm is {ranks}, but must be distinct ranks from 0 to {size - 1}.")
    if own not in ranks:
        raise ValueError(
            f"comm is {ranks}, which leaves out rank {own}, the caller; only ranks in the list call init()."
        )


def _rendezvous() -> _World:
    import torch.distributed as distributed
    from torch.distributed.rendezvous import rendezvous

    dist: Any = distributed
    try:
        store, rank, size = next(rendezvous("env://", timeout=timedelta(seconds=STORE_SECONDS)))
    except RuntimeError as error:
        raise SparseRingError(
            f"This rank has not met all others at MASTER_ADDR, MASTER_PORT ({str(error).splitlines()[0]}). WORLD_SIZE processes "
            f"must call init() within {STORE_SECONDS:.0f} s."
        ) from error
    return _World(dist.PrefixStore(PREFIX, store), rank, size)
