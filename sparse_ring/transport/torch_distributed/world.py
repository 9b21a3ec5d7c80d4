"""Jobs of torch.distributed: started by torchrun, or joined by the script's own ``init_process_group``.

Ranks meet in torch's store, under keys of their own, and connect with a gloo group of their own (``c10d.py``). The default process
group is neither used nor made: a script may make it before or after ``init()``, over any backend, and destroy it. Its store is
given back once all ranks are connected.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sparse_ring.config import Config, settings_before_init, torchrun
from sparse_ring.errors import SparseRingError
from sparse_ring.transport.base import Transport
from sparse_ring.transport.torch_distributed.meeting import connect, gather

PREFIX = "sparse_ring"
# In the store: the rank that has aborted the job.
GONE_KEY = "gone"
# Rank 0 leaves the others this long to read that, since its store may end with it.
ABORT_SECONDS = 0.5


class _World(NamedTuple):
    store: Any
    rank: int
    size: int
    give_back: Callable[[], None] = lambda: None

    def gone(self) -> int | None:
        """Return the rank that has aborted the job, if one has."""
        return int(self.store.get(GONE_KEY)) if self.store.check([GONE_KEY]) else None


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


def join(comm: Any = None, config: Config | None = None) -> _World:
    """Find the job's store; with torchrun's variables, wait until all ranks (``comm``, where it lists some) have come to it.

    Raises StallError naming those that do not come in time, RankLostError for one that gives up, SparseRingError where the
    store cannot be reached any more.
    """
    global _current, _by_variables
    if is_initialized():
        import torch.distributed as distributed

        from sparse_ring.transport.torch_distributed.borrowed_store import BorrowedStore

        dist: Any = distributed
        borrowed = BorrowedStore(dist.distributed_c10d._get_default_store())
        store = dist.PrefixStore(PREFIX, borrowed)
        _current = _World(store, dist.get_rank(), dist.get_world_size(), borrowed.give_back)
    elif _by_variables is not None:
        _current = _by_variables
    else:
        _current = _by_variables = _meet(comm, config or settings_before_init())
    return _current


def transport(comm: Any = None, config: Config | None = None) -> Transport:
    """Return a transport among all ranks, a sequence of them, or those of a process group.

    Raises ValueError for ranks that do not exist, repeat, or leave out this one.
    """
    import torch.distributed as distributed

    from sparse_ring.transport.torch_distributed.c10d import C10dTransport

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
        number = world.gone()
        return ranks.index(number) if number in ranks else None

    return C10dTransport(
        store, ranks.index(world.rank), len(ranks), config=config, gone=gone, connected=world.give_back
    )


def abort(code: int) -> None:
    """End this process; ranks that are not connected with it yet find its number in the store."""
    from sparse_ring.transport.torch_distributed.c10d import end_process

    if _current is not None:
        with contextlib.suppress(Exception):
            _current.store.set(GONE_KEY, str(_current.rank))
            if _current.rank == 0:
                time.sleep(ABORT_SECONDS)
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


def _meet(comm: Any, config: Config) -> _World:
    global _current
    import torch.distributed as distributed

    dist: Any = distributed
    variables = torchrun()
    assert variables is not None, "start_world() has seen torchrun's variables"
    store = dist.PrefixStore(f"{PREFIX}/{variables.attempt}", connect(variables, config))
    # From here on, the others can be told where this rank fails.
    _current = world = _World(store, variables.rank, variables.size)
    ranks = list(range(world.size))
    if isinstance(comm, Sequence):
        # What is wrong with such a list is told later, to ranks that have met.
        ranks = [rank for rank in ranks if rank in comm]
    try:
        gather(store, world.rank, ranks, config, world.gone)
    except SparseRingError:
        raise
    except RuntimeError as error:
        raise SparseRingError(
            f"Rank {world.rank} has lost the store at MASTER_ADDR, MASTER_PORT ({str(error).splitlines()[0]}). Where rank 0 has "
            f"ended, its own output says why."
        ) from error
    return world
