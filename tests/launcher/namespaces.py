"""Several hosts on one machine: network namespaces on a bridge, reached by a script that stands for ssh."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

HOSTS = 2
# Runs what ssh would: the words after the host, joined, by a shell; the host name is its own there.
SSH = """\
#!/bin/sh
echo "$@" >> "$0.log"
while [ "${1#-}" != "$1" ]; do
    case "$1" in -p|-i) shift 2;; *) shift;; esac
done
number="${1##*.}"; shift
exec ip netns exec "@NAME@n$number" unshare --uts sh -c "hostname host$number; $*"
"""


@dataclass(frozen=True)
class Hosts:
    """``addresses`` of the hosts, the ``interface`` that leads to them (called so on each), and ``ssh``, the script."""

    name: str
    addresses: list[str]
    interface: str
    ssh: Path

    def options(self, ranks_each: int = 1) -> list[str]:
        """Options of sparse-ring-run that start ranks on all of them with MPICH."""
        hosts = ",".join(f"{address}:{ranks_each}" for address in self.addresses)
        # Shared memory would join what a network is to keep apart.
        return [
            "-H", hosts, "--network-interface", self.interface, "-x", "UCX_TLS=tcp,self",
            "--mpi-args", f"-launcher-exec {self.ssh}",
        ]  # fmt: skip

    def cut(self, number: int) -> None:
        """Pull the cable of a host (1 is the first)."""
        ip("link", "set", f"{self.name}v{number}", "down")

    def mend(self, number: int) -> None:
        """Put the cable of a host back."""
        ip("link", "set", f"{self.name}v{number}", "up")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def why_not() -> str:
    """Say why no namespaces can be made here, empty where they can."""
    if os.geteuid() != 0:
        return "several hosts: network namespaces need root"
    missing = [program for program in ("ip", "unshare", "hostname") if shutil.which(program) is None]
    if missing:
        return f"several hosts: {', '.join(missing)} not installed"
    name = f"srt{os.getpid() % 100000}"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"several hosts: {tried.stderr.strip()}"
    ip("netns", "del", name)
    return ""


def make(folder: Path) -> Iterator[Hosts]:
    """Make the hosts, and take away what was made, links first: a namespace keeps its links alive for a while."""
    name = f"sr{os.getpid() % 100000}"
    subnet = f"10.213.{os.getpid() % 250}"
    script = folder / "ssh"
    script.write_text(SSH.replace("@NAME@", name))
    script.chmod(0o755)
    made: list[Sequence[str]] = []
    try:
        ip("link", "add", name, "type", "bridge")
        made.append(["link", "del", name])
        ip("addr", "add", f"{subnet}.254/24", "dev", name)
        ip("link", "set", name, "up")
        for number in range(1, HOSTS + 1):
            ip("netns", "add", f"{name}n{number}")
            made.append(["netns", "del", f"{name}n{number}"])
        for number in range(1, HOSTS + 1):
            inside, outside = f"{name}n{number}", f"{name}v{number}"
            ip("link", "add", outside, "type", "veth", "peer", "name", name, "netns", inside)
            made.append(["link", "del", outside])
            ip("link", "set", outside, "master", name, "up")
            ip("-n", inside, "addr", "add", f"{subnet}.{number}/24", "dev", name)
            for link in ("lo", name):
                ip("-n", inside, "link", "set", link, "up")
        yield Hosts(name, [f"{subnet}.{number}" for number in range(1, HOSTS + 1)], name, script)
    finally:
        for words in reversed(made):
            ip(*words)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    if reason := why_not():
        pytest.skip(reason)
    yield from make(tmp_path_factory.mktemp("hosts"))
