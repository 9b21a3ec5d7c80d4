"""Which transport ``init()`` uses: MPI, torch.distributed, or none for this process alone."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from sparse_ring.config import Config, Launched, launched, torchrun, torchrun_is_complete
from sparse_ring.errors import SparseRingError
from sparse_ring.transport.base import Transport
from sparse_ring.transport.threads import ThreadWorld
from sparse_ring.transport.torch_distributed import world as torch_world
from sparse_ring.transport.torch_distributed.world import check_ranks

logger = logging.getLogger(__name__)


def start_world(comm: Any = None, asked_for: str = "auto", config: Config | None = None) -> str:
    """Choose the transport, "mpi" or "c10d", and start it, so that ranks that wait for this one do not miss its later errors.

    ``comm`` decides where it is a communicator of mpi4py or a process group of torch; then ``asked_for`` (the setting
    ``transport``); then an MPI launcher, torch.distributed that the script has initialised, torchrun. Without an MPI library
    nothing is started; ``open_world`` says what that means. ``config`` has the deadlines for ranks to come.

    Raises ConfigError where torchrun's variables are incomplete, SparseRingError where an MPI launcher and torchrun
    contradict each other, or torch.distributed is asked for without either start; StallError and RankLostError as
    ``torch_distributed.world.join``.
    """
    kind = _choice(comm, asked_for)
    if kind == "c10d":
        torch_world.join(comm, config)
    else:
        with contextlib.suppress(ImportError, RuntimeError):
            _load_mpi()
    return kind


def abort_world(code: int) -> None:
    """End all processes of the job where there are others."""
    if torch_world.joined_by_others():
        torch_world.abort(code)
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized() and mpi.COMM_WORLD.Get_size() > 1:
        mpi.COMM_WORLD.Abort(code)
        os._exit(code)


def open_world(
    comm: Any = None, config: Config | None = None, kind: str = "mpi"
) -> tuple[Transport, Callable[[], None]]:
    """Return the transport over a communicator, and what frees the communicator made here once the transport is closed.

    ``config`` has the deadline for the other ranks to join. ``comm``: None for all processes of the job, a sequence of world
    ranks (this one among them), an mpi4py communicator, or a process group of torch. ``kind`` is what ``start_world`` chose.

    Raises SparseRingError where a launcher started this process but MPI cannot be loaded or is another one's, and
    ValueError for ranks that do not exist, repeat, or leave out this one.
    """
    if kind == "c10d":
        return torch_world.transport(comm, config), _nothing
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


def _choice(comm: Any, asked_for: str) -> str:
    if comm is not None and not isinstance(comm, Sequence):
        return "c10d" if torch_world.is_process_group(comm) else "mpi"
    if asked_for == "mpi":
        return "mpi"
    if asked_for == "c10d":
        if not torch_world.is_initialized() and torchrun() is None:
            raise SparseRingError(
                "SPARSE_RING_TRANSPORT is 'c10d', but this process was not started by torchrun (RANK, WORLD_SIZE, MASTER_ADDR "
                "and MASTER_PORT are not set) and has not called torch.distributed.init_process_group."
            )
        return "c10d"
    announced = launched()
    if announced is None:
        return "c10d" if torch_world.is_initialized() or torchrun() is not None else "mpi"
    variables = torchrun() if torchrun_is_complete() else None
    if variables is not None and variables.size != announced.size:
        raise SparseRingError(
            f"This process was started twice over: an MPI launcher announces {announced.size} ranks, and torchrun's variables "
            f"(WORLD_SIZE) {variables.size}. Set SPARSE_RING_TRANSPORT to mpi or c10d to tell which of them is meant."
        )
    return "mpi"


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
    check_ranks(ranks, world.Get_rank(), world.Get_size())
    everyone = world.Get_group()
    group = everyone.Incl(ranks)
    part = world.Create_group(group)
    group.Free()
    everyone.Free()
    return part
