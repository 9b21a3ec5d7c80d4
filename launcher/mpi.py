"""Finds the MPI that is installed and tells which one it is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from sparse_ring.errors import SparseRingError

from .base import Mpi, Start
from .hydra import IntelMpi, Mpich
from .openmpi import FIVE, FOUR, OpenMpi
from .slurm import Srun, inside_allocation

RANK_VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")
"""Where MPI libraries tell a process its rank before MPI is started (MPICH and Intel MPI, Open MPI, other PMIx)."""

NOT_FOUND = "No mpiexec was found beside {python} or on PATH. Install one with: pip install sparse-ring[mpich]"
_OPEN_MPI = re.compile(r"PRRTE|(?:Open MPI|OpenRTE)\)?\s+v?(?P<major>\d*)")


class OtherMpi(Mpi):
    """An MPI whose options are not known: called with ``-n`` alone."""

    def command(self, start: Start) -> list[str]:
        """See :meth:`Mpi.command`."""
        if start.hosts or start.interface:
            raise SparseRingError(
                f"How {self.name} ({self.path}) is told hosts and interfaces is not known; use MPICH, Intel MPI or Open MPI."
            )
        return [self.path, *start.extra, "-n", str(start.ranks), *start.program]


def find_mpi(environment: Mapping[str, str], python: str = "", *, hosts: bool = False) -> Mpi:
    """Return the MPI beside ``python``, else the first on PATH; in a Slurm allocation srun, unless Open MPI is there.

    ``python`` is this process's own where it is empty. ``hosts``: the user named some, so that an allocation does not
    count. Raises SparseRingError where there is no MPI.
    """
    python = python or sys.executable
    srun = shutil.which("srun", path=environment.get("PATH", os.defpath))
    allocated = srun is not None and inside_allocation(environment) and not hosts
    beside = Path(python).parent
    path = shutil.which("mpiexec", path=os.pathsep.join([str(beside), environment.get("PATH", os.defpath)]))
    if path is None and not allocated:
        raise SparseRingError(NOT_FOUND.format(python=python))
    found = _ask(path, environment) if path is not None else None
    # Open MPI 5 does not speak PMI-2, and its own mpiexec knows Slurm.
    if srun is not None and allocated and not isinstance(found, OpenMpi):
        return Srun(srun, environment)
    assert found is not None
    return found


def _ask(path: str, environment: Mapping[str, str]) -> Mpi:
    try:
        answer = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=30, env=dict(environment), check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SparseRingError(f"{path} --version failed ({error}); see whether this MPI works.") from error
    return identify(path, answer.stdout + answer.stderr, root=os.geteuid() == 0)


def identify(path: str, version: str, *, root: bool) -> Mpi:
    """Tell from the text of ``mpiexec --version`` which MPI this is; an unknown one gets no options but ``-n``."""
    if found := _OPEN_MPI.search(version):
        return OpenMpi(path, FOUR if found["major"] and int(found["major"]) < 5 else FIVE, root=root)
    if "Intel(R) MPI" in version:
        return IntelMpi(path, "Intel MPI")
    if "HYDRA" in version or "Hydra" in version:
        return Mpich(path, "MPICH")
    return OtherMpi(path, version.strip().partition("\n")[0] or "unknown MPI")


def rank_of(environment: Mapping[str, str]) -> int | None:
    """Return the rank that MPI gave this process, None where it was not started by a known MPI."""
    for name in RANK_VARIABLES:
        if environment.get(name, "").isdigit():
            return int(environment[name])
    return None
