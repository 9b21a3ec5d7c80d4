"""Finds the MPI that is installed and says how its mpiexec wants to be called."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sparse_ring.errors import SparseRingError

RANK_VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")
"""Where MPI libraries tell a process its rank before MPI is started (MPICH and Intel MPI, Open MPI, other PMIx)."""

NOT_FOUND = "No mpiexec was found beside {python} or on PATH. Install one with: pip install sparse-ring[mpich]"


@dataclass(frozen=True, slots=True)
class Mpi:
    """An MPI installation: ``path`` of its mpiexec, ``name`` for people, ``options`` that go before ``-n``."""

    path: str
    name: str
    options: tuple[str, ...] = ()

    def command(self, ranks: int, program: list[str]) -> list[str]:
        """Return the command line that starts ``ranks`` times ``program`` on this host."""
        return [self.path, *self.options, "-n", str(ranks), *program]


def find_mpi(environment: Mapping[str, str], python: str = sys.executable) -> Mpi:
    """Return the MPI beside ``python``, else the first on PATH. Raises SparseRingError where there is none."""
    beside = Path(python).parent
    path = shutil.which("mpiexec", path=os.pathsep.join([str(beside), environment.get("PATH", os.defpath)]))
    if path is None:
        raise SparseRingError(NOT_FOUND.format(python=python))
    try:
        answer = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=30, env=dict(environment), check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SparseRingError(f"{path} --version failed ({error}); see whether this MPI works.") from error
    return identify(path, answer.stdout + answer.stderr, root=os.geteuid() == 0)


def identify(path: str, version: str, *, root: bool) -> Mpi:
    """Tell from the text of ``mpiexec --version`` which MPI this is; an unknown one gets no options but ``-n``."""
    if "Open MPI" in version or "OpenRTE" in version or "PRRTE" in version:
        # Without these, Open MPI refuses root and more ranks than cores, and pins a rank's torch threads to one core.
        options = (*(("--allow-run-as-root",) if root else ()), "--oversubscribe", "--bind-to", "none")
        return Mpi(path, "Open MPI", options)
    if "HYDRA" in version or "Hydra" in version:
        return Mpi(path, "MPICH")
    return Mpi(path, version.strip().partition("\n")[0] or "unknown MPI")


def rank_of(environment: Mapping[str, str]) -> int | None:
    """Return the rank that MPI gave this process, None where it was not started by a known MPI."""
    for name in RANK_VARIABLES:
        if environment.get(name, "").isdigit():
            return int(environment[name])
    return None
