"""The lab: hosts, their links, and commands that run on them."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from benchmarks.netlab import counters, links, namespaces
from benchmarks.netlab.counters import Traffic
from benchmarks.netlab.namespaces import Host, LabError
from benchmarks.netlab.signals import as_exceptions, put_off
from benchmarks.netlab.start import STARTERS, Job, Result

MOST_HOSTS = 99
PROGRAMS = {
    "ip": "iproute2",
    "tc": "iproute2",
    "unshare": "util-linux",
    "setpriv": "util-linux",
    "hostname": "hostname",
}
# Stands for ssh: the words after options and address, joined, by a shell. What it was called with is logged beside it.
SSH = """\
#!/bin/sh
echo "$@" >> "$0.log"
while [ "${1#-}" != "$1" ]; do
    case "$1" in -p|-i) shift 2;; *) shift;; esac
done
number="${1##*.}"; shift
exec ip netns exec "@NAME@n$number" unshare --uts sh -c "hostname host$number; $*"
"""


def missing() -> list[str]:
    """Say what keeps a lab from being made here, a sentence each; empty where nothing does."""
    reasons = []
    if os.geteuid() != 0:
        reasons.append("network namespaces need root: run it as root, or with sudo")
    for program, package in PROGRAMS.items():
        # Users have no sbin in their path, root does.
        if shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin") is None:
            reasons.append(f"{program} is not installed: it is in the package {package}")
    if not reasons:
        name = f"srl{os.getpid()}zn1"
        try:
            namespaces.system("ip", "netns", "add", name)
            namespaces.system("ip", "netns", "del", name)
        except LabError as error:
            reasons.append(f"network namespaces cannot be made here: {error}")
    return reasons


class Lab:
    """``hosts`` hosts (1 to 99) on a bridge, each behind a link that carries ``rate`` either way: ``"100mbit"``,
    ``"2.5gbit"``, ``"unshaped"``.

    They exist inside the ``with`` block and are taken away at its end, whatever ends it: an exception, SIGINT, SIGTERM or
    SIGHUP (in the main thread, where these raise), the end of the program. What a killed lab has left is taken away by the
    next one. Hosts have numbers from 1 and are called host1, host2, …; they share this machine's files and processors.

    Raises ValueError for what is no rate or number of hosts, LabError where namespaces cannot be made.
    """

    def __init__(self, hosts: int = 2, rate: str = links.UNSHAPED) -> None:
        if not 1 <= hosts <= MOST_HOSTS:
            raise ValueError(f"a lab has 1 to {MOST_HOSTS} hosts, not {hosts}")
        links.bits_per_second(rate)
        self.name = ""
        self.hosts: list[Host] = []
        self._count = hosts
        self._rates = [rate] * hosts
        self._counted = [Traffic()] * hosts
        self._folder = Path()
        self._handlers = contextlib.ExitStack()

    def __enter__(self) -> Lab:
        if reasons := missing():
            raise LabError("; ".join(reasons))
        # For what an exception at an unlucky moment would leave.
        atexit.register(self._remove)
        self._handlers.enter_context(as_exceptions())
        try:
            with put_off(), namespaces.building():
                namespaces.remove_leftovers()
                self.name = namespaces.free_name()
                self._folder = namespaces.make_folder(self.name)
                self.hosts = namespaces.make(self.name, self._count)
                for host, rate in zip(self.hosts, self._rates, strict=True):
                    links.shape(host, rate)
            self.ssh.write_text(SSH.replace("@NAME@", self.name))
            self.ssh.chmod(0o755)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._remove()
        finally:
            self._handlers.close()

    @property
    def addresses(self) -> list[str]:
        """IPv4 addresses of the hosts."""
        return [host.address for host in self.hosts]

    @property
    def interface(self) -> str:
        """Name of the interface that leads to the other hosts; the same on each, and on this machine."""
        return self.name

    @property
    def ssh(self) -> Path:
        """A script that runs a command on a host as ssh would; its calls are logged in a file ``.log`` beside it."""
        return self._folder / "ssh"

    def host(self, number: int) -> Host:
        """Return a host by its number. Raises ValueError where the lab has no such host."""
        if not 1 <= number <= self._count:
            raise ValueError(f"the lab has hosts 1 to {self._count}, not {number}")
        return self.hosts[number - 1]

    def set_rate(self, rate: str, host: int | None = None) -> None:
        """Change what the link of one host, or of each, carries. Raises ValueError, LabError."""
        changed = self.hosts if host is None else [self.host(host)]
        links.bits_per_second(rate)
        for one in changed:
            place = one.number - 1
            if links.UNSHAPED in (rate, self._rates[place]) and rate != self._rates[place]:
                # The new queue counts from 0.
                self._counted[place] += counters.read(one)
            links.shape(one, rate)
            self._rates[place] = rate

    def down(self, host: int) -> None:
        """Pull the cable of a host. Raises ValueError, LabError."""
        namespaces.system("ip", "link", "set", self.host(host).cable, "down")

    def up(self, host: int) -> None:
        """Put the cable of a host back. Raises ValueError, LabError."""
        namespaces.system("ip", "link", "set", self.host(host).cable, "up")

    def traffic(self) -> list[Traffic]:
        """Return what each host has sent and received since the lab was made."""
        return [before + counters.read(host) for before, host in zip(self._counted, self.hosts, strict=True)]

    def launcher_options(self, ranks_per_host: int = 1) -> list[str]:
        """Options of sparse-ring-run by which it starts ranks on all hosts with MPICH."""
        hosts = ",".join(f"{address}:{ranks_per_host}" for address in self.addresses)
        # Shared memory would join what a network is to keep apart.
        return [
            "-H", hosts, "--network-interface", self.interface, "-x", "UCX_TLS=tcp,self",
            "--mpi-args", f"-launcher-exec {self.ssh}",
        ]  # fmt: skip

    def run(
        self,
        command: Sequence[str],
        *,
        ranks_per_host: int = 1,
        starter: str = "torch",
        environment: Mapping[str, str] | None = None,
        timeout: float | None = None,
        show: bool = False,
    ) -> Result:
        """Run ``command`` on all hosts and return how it ended, what the ranks printed, and what the links carried.

        ``starter`` is ``"torch"`` (the variables that torchrun sets) or ``"mpi"`` (sparse-ring-run over MPICH). ``environment``
        is added to this process's; OMP_NUM_THREADS is cores / ranks unless set. ``show`` prints lines as they come.
        When a rank fails, the others are ended. Whatever still runs on the hosts afterwards is killed, so one run at a time.

        Raises ValueError for an unknown starter, subprocess.TimeoutExpired with the output so far after ``timeout`` seconds.
        """
        if starter not in STARTERS:
            raise ValueError(f"starter {starter!r} is none of {', '.join(STARTERS)}")
        if ranks_per_host < 1:
            raise ValueError(f"ranks_per_host must be at least 1, not {ranks_per_host}")
        threads = max(1, len(os.sched_getaffinity(0)) // (ranks_per_host * self._count))
        added = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads)), **(environment or {})}
        job = Job(
            list(command), self.hosts, ranks_per_host, added, timeout, show, self.launcher_options(ranks_per_host)
        )
        before, began = self.traffic(), time.perf_counter()
        ended = STARTERS[starter](job)
        seconds = time.perf_counter() - began
        carried = [after - earlier for after, earlier in zip(self.traffic(), before, strict=True)]
        return Result(ended.returncode, ended.stdout, ended.stderr, carried, seconds)

    def _remove(self) -> None:
        if not self.name:
            return
        with put_off():
            namespaces.remove(self.name)
            self.name = ""
            atexit.unregister(self._remove)
