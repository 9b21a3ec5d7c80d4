"""Open MPI's mpiexec: versions 4 and 5, whose daemons are told the same things by other names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .base import Mpi, Start, interface_variables, unset
from .hosts import as_text


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one version's daemons are told: ``option`` in front of ``interface`` and ``ssh_arguments`` with a value."""

    option: str
    interface: str
    ssh_arguments: str


FOUR = Dialect("--mca", "oob_tcp_if_include", "plm_rsh_args")
FIVE = Dialect("--prtemca", "prte_if_include", "plm_ssh_args")


class OpenMpi(Mpi):
    """Open MPI. Other hosts get only those variables that it is told by name."""

    def __init__(self, path: str, dialect: Dialect, *, root: bool) -> None:
        super().__init__(path, "Open MPI")
        self.dialect, self.root = dialect, root

    def command(self, start: Start) -> list[str]:
        """See :meth:`Mpi.command`."""
        # Without these, Open MPI refuses root and more ranks than cores, and pins a rank's torch threads to one core.
        line = [self.path, *(["--allow-run-as-root"] if self.root else []), "--oversubscribe", "--bind-to", "none"]
        if start.interface:
            line += ["--mca", "btl_tcp_if_include", start.interface]
            line += [self.dialect.option, self.dialect.interface, start.interface]
        if start.hosts:
            line += ["--map-by", "slot", "--host", as_text(start.hosts)]
            for name in start.passed:
                line += ["-x", name]
        if start.ssh_arguments():
            line += [self.dialect.option, self.dialect.ssh_arguments, " ".join(start.ssh_arguments())]
        return [*line, *start.extra, "-n", str(start.ranks), *start.program]

    def variables(self, start: Start, environment: Mapping[str, str]) -> dict[str, str]:
        """See :meth:`Mpi.variables`."""
        return unset(interface_variables(start.interface, "UCX_NET_DEVICES"), environment)
