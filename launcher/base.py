"""What an MPI must be able to say for sparse-ring-run to start ranks with it.

An :class:`Mpi` turns one :class:`Start` into a command line and the variables that go with it; it runs nothing. Each
MPI is a sibling file: ``hydra.py`` (MPICH, Intel MPI), ``openmpi.py`` (Open MPI 4 and 5), ``slurm.py`` (srun);
``mpi.py`` finds the one that is installed. Whatever starts the ranks must

* give the environment to all of them, also on other hosts,
* give standard input to rank 0 (the others are cut off from it by their stubs),
* leave other ranks alone when one ends, and not pin a rank to one core.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace

from .hosts import Host

_PASSED = ("PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
_PASSED_PREFIXES = (
    "SPARSE_RING_",
    "HOROVOD_",
    "PYTHON",
    "OMP_",
    "MKL_",
    "TORCH",
    "CUDA_",
    "NCCL_",
    "GLOO_",
    "UCX_",
    "FI_",
)


@dataclass(frozen=True, kw_only=True)
class Start:
    """What is to be started.

    ranks, program
        How many times which command line.
    hosts
        With as many slots as each gets ranks; none: this host alone, or those of the allocation under Slurm.
    interface
        Network interface for MPI and the ranks; empty: theirs to choose.
    ssh_port, ssh_identity
        For ssh to the other hosts (no blanks: MPIs cut at them); 0 and empty: as ssh is configured.
    passed
        Names of the environment variables that the ranks must find; from the user those that are named with ``-x``.
    extra
        The user's own options for mpiexec, put last among the options.
    """

    ranks: int
    program: tuple[str, ...]
    hosts: tuple[Host, ...] = ()
    interface: str = ""
    ssh_port: int = 0
    ssh_identity: str = ""
    passed: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()

    def ssh_arguments(self) -> list[str]:
        """Return the arguments for ssh."""
        port = ["-p", str(self.ssh_port)] if self.ssh_port else []
        return port + (["-i", self.ssh_identity] if self.ssh_identity else [])


class Mpi(ABC):
    """An MPI installation: ``path`` of its mpiexec, ``name`` for people."""

    def __init__(self, path: str, name: str) -> None:
        self.path, self.name = path, name

    @abstractmethod
    def command(self, start: Start) -> list[str]:
        """Return the command line that starts the ranks."""

    def variables(self, start: Start, environment: Mapping[str, str]) -> dict[str, str]:
        """Return what must be added to ``environment``; where the user has set a variable, that stays."""
        return {}

    def remote_hosts(self, start: Start) -> list[str]:
        """Return the names of the hosts where ranks will run, empty where all run on this one."""
        return [host.name for host in start.hosts]


def unset(wanted: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of ``wanted`` that ``environment`` lacks."""
    return {name: value for name, value in wanted.items() if not environment.get(name)}


def interface_variables(interface: str, *names: str) -> dict[str, str]:
    """Return variables that bind the ranks' own traffic to ``interface``: torch's and NCCL's, and ``names``."""
    return dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", *names), interface) if interface else {}


def complete(start: Start, arguments: list[str], environment: Mapping[str, str]) -> Start:
    """Return ``start`` with the stub before the program, and all that ranks on other hosts need in ``passed``.

    ``arguments`` lead the stub to the launcher. The variables passed are the user's own choice, those of ours and of
    the libraries below, and where programs and modules are found.
    """
    stub = (sys.executable, "-m", "sparse_ring.launcher.rank", *arguments, "--")
    names = {name for name in environment if name in _PASSED or name.startswith(_PASSED_PREFIXES)}
    return replace(start, program=(*stub, *start.program), passed=tuple(sorted(names | set(start.passed))))
