"""Slurm's srun inside an allocation, for MPI libraries that speak PMI-2 (MPICH and its kin)."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

from .base import Mpi, Start, interface_variables, unset
from .hosts import is_local

_OPTIONS = (
    "--mpi=pmi2",
    "--export=ALL",
    "--input=0",
    # More ranks than cores are allowed, and a rank's torch threads may use what the job has.
    "--overcommit",
    "--cpu-bind=none",
    # Who ends whom, and when, is the launcher's to say.
    "--kill-on-bad-exit=0",
    "--wait=0",
)


class Srun(Mpi):
    """srun in the allocation that ``environment`` describes; the hosts are the allocation's."""

    def __init__(self, path: str, environment: Mapping[str, str]) -> None:
        super().__init__(path, "Slurm")
        self._nodes = environment.get("SLURM_JOB_NODELIST", "")

    def command(self, start: Start) -> list[str]:
        """See :meth:`Mpi.command`."""
        return [self.path, *_OPTIONS, *start.extra, "-n", str(start.ranks), *start.program]

    def variables(self, start: Start, environment: Mapping[str, str]) -> dict[str, str]:
        """See :meth:`Mpi.variables`."""
        return unset(interface_variables(start.interface, "UCX_NET_DEVICES", "FI_TCP_IFACE"), environment)

    def remote_hosts(self, start: Start) -> list[str]:
        """See :meth:`Mpi.remote_hosts`."""
        # A list of several hosts is written host[1-4]; only Slurm knows for sure which these are.
        return [] if is_local(self._nodes) else _names(self._nodes)


def inside_allocation(environment: Mapping[str, str]) -> bool:
    """Return whether this process belongs to a Slurm job."""
    return bool(environment.get("SLURM_JOB_ID") and environment.get("SLURM_JOB_NODELIST"))


def _names(nodes: str) -> list[str]:
    """Return the hosts of a Slurm list, the list itself where scontrol does not answer: one name needs no help."""
    try:
        answer = subprocess.run(
            ["scontrol", "show", "hostnames", nodes], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return [nodes]
    return answer.stdout.split()
