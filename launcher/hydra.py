"""MPICH's mpiexec (hydra) and Intel MPI's, which descends from it."""

from __future__ import annotations

from collections.abc import Mapping

from .base import Mpi, Start, interface_variables, unset
from .hosts import as_text


class Mpich(Mpi):
    """MPICH. Its mpiexec passes the environment on by itself, through its own connections."""

    def command(self, start: Start) -> list[str]:
        """See :meth:`Mpi.command`."""
        interface = ["-iface", start.interface] if start.interface else []
        hosts = ["-hosts", as_text(start.hosts)] if start.hosts else []
        return [self.path, *interface, *hosts, *start.extra, "-n", str(start.ranks), *start.program]

    def variables(self, start: Start, environment: Mapping[str, str]) -> dict[str, str]:
        """See :meth:`Mpi.variables`."""
        # In a Slurm allocation hydra would start its proxies with srun, on the allocation's hosts only.
        wanted = {"HYDRA_LAUNCHER": "ssh"} if start.hosts else {}
        wanted |= interface_variables(start.interface, "UCX_NET_DEVICES", "FI_TCP_IFACE")
        result = unset(wanted, environment)
        if start.ssh_arguments():
            given = environment.get("HYDRA_LAUNCHER_EXTRA_ARGS", "").split()
            result["HYDRA_LAUNCHER_EXTRA_ARGS"] = " ".join([*given, *start.ssh_arguments()])
        return result


class IntelMpi(Mpi):
    """Intel MPI: each host's ranks are an argument set of their own, which keeps them in order and takes any count."""

    def command(self, start: Start) -> list[str]:
        """See :meth:`Mpi.command`."""
        interface = ["-iface", start.interface] if start.interface else []
        ssh = ["-bootstrap", "ssh"] if start.hosts else []
        if start.ssh_arguments():
            ssh += ["-bootstrap-exec-args", " ".join(start.ssh_arguments())]
        line = [self.path, *interface, *ssh, *start.extra]
        if not start.hosts:
            return [*line, "-n", str(start.ranks), *start.program]
        for number, host in enumerate(start.hosts):
            line += [*([":"] if number else []), "-host", host.name, "-n", str(host.slots), *start.program]
        return line

    def variables(self, start: Start, environment: Mapping[str, str]) -> dict[str, str]:
        """See :meth:`Mpi.variables`."""
        return unset(interface_variables(start.interface, "FI_TCP_IFACE"), environment)
