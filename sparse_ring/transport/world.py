"""Which transport ``init()`` uses: MPI where there is one, else this process alone."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from sparse_ring.config import Config, Launched, launched
from sparse_ring.errors import SparseRingError
from sparse_ring.transport.base import Transport
from sparse_ring.transport.threads import ThreadWorld

logger = logging.getLogger(__name__)


def start_mpi() -> None:
    """Start MPI where there is one, so that ranks which wait in its start do not wait for this one's later errors.

    Without an MPI library nothing happens; ``open_world`` says what that means.
    """
    with contextlib.suppress(ImportError, RuntimeError):
        _load_mpi()


def abort_world(code: int) -> None:
    """End all processes of the job where MPI has started and there are others."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized() and mpi.COMM_WORLD.Get_size() > 1:
        mpi.COMM_WORLD.Abort(code)
        os._exit(code)


def open_world(comm: Any = None, config: Config | None = None) -> tuple[Transport, Callable[[], None]]:
    """Return the transport over a communicator, and what frees the communicator made here once the transport is closed.

    ``config`` has the deadline for the other ranks to join. ``comm``: None for all processes of the job, a sequence of world
    ranks (this one among them), or an mpi4py communicator.

    Raises SparseRingError where a launcher started this process but MPI cannot be loaded or is another one's, and
    ValueError for ranks that do not exist, repeat, or leave out this one.
    """
    announced = launched()
    try:
        mpi = _load_mpi()
    except (ImportError, RuntimeError) as error:
        if announced is not None or comm is not None:
            wheel = announced.wheel if announced else "mpich"
            raise SparseRingError(
                f"MPI cannot be loaded in this process ({str(error).splitlines()[0]}). Install its library beside "
                f"sparse_ring: pip install mpi4py {wheel}"
            ) from error
        logger.info("No MPI library (pip install mpi4py mpich) and no launcher: running as one rank.")
        return ThreadWorld(1).transport(0), _nothing
    world = mpi.COMM_WORLD
    _check_launcher(announced, int(world.Get_size()), str(mpi.Get_library_version()))
    if comm is None:
        return _over(world, config), _nothing
    if isinstance(comm, Sequence):
        group = _part_of(world, list(comm))
        return _over(group, config), group.Free
    return _over(comm, config), _nothing


def _nothing() -> None:
    pass


def _load_mpi() -> Any:
    if "mpi4py.MPI" not in sys.modules:
        import mpi4py

        # mpi4py would finalize from every process that ends, a forked child too, which tears down the parent's MPI.
        if mpi4py.rc.finalize is None:
            mpi4py.rc.finalize = False
            from mpi4py import MPI

            atexit.register(_finalize, MPI, os.getpid())
    from mpi4py import MPI

    return MPI


def _finalize(mpi: Any, process: int) -> None:
    if os.getpid() == process and not mpi.Is_finalized():
        mpi.Finalize()


def _check_launcher(announced: Launched | None, size: int, library: str) -> None:
    if announced is not None and announced.size > 1 and size == 1:
        raise SparseRingError(
            f"The launcher started {announced.size} ranks, but this process sees 1: its MPI library "
            f"({library.split(',')[0].splitlines()[0].strip()}) belongs to another launcher. Start with the mpiexec "
            f"beside this Python, or install the library that fits the launcher: pip install {announced.wheel}"
        )


def _over(comm: Any, config: Config | None) -> Transport:
    from sparse_ring.transport.mpi import MpiTransport

    return MpiTransport(comm, config=config)


def _part_of(world: Any, ranks: list[int]) -> Any:
    size, own = world.Get_size(), world.Get_rank()
    if len(set(ranks)) != len(ranks) or not all(isinstance(rank, int) and 0 <= rank < size for rank in ranks):
        raise ValueError(f"comm is {ranks}, but must be distinct ranks from 0 to {size - 1}.")
    if own not in ranks:
        raise ValueError(
            f"comm is {ranks}, which leaves out rank {own}, the caller; only ranks in the list call init()."
        )
    everyone = world.Get_group()
    group = everyone.Incl(ranks)
    part = world.Create_group(group)
    group.Free()
    everyone.Free()
    return part
