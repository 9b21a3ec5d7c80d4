"""Network namespaces, their names, and how they are taken away, also those of a lab that was killed."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

# "srl", the owner's pid, a letter for each lab of that process; then n and v for namespace and cable of a host.
# With pids of seven digits and two for the host these are 14 letters; the kernel takes 15.
NAME = re.compile(r"(?P<lab>srl(?P<pid>\d+)[a-z])(?:[nv]\d+)?")
LINKS = Path("/sys/class/net")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
PATIENCE_SECONDS = 30.0
# Becomes host $0 in a UTS namespace of its own and then the command, in one and the same process.
ENTER = ["unshare", "--uts", "setpriv", "--pdeathsig", "KILL", "sh", "-c", 'hostname "$0" && exec "$@"']


class LabError(RuntimeError):
    """The lab cannot do what was asked; the message says what the system answered."""


@dataclass(frozen=True)
class Host:
    """One host: ``number`` from 1, its ``name`` (what ``hostname`` says there), IPv4 ``address``, and the names of its
    ``namespace``, of the ``interface`` in there, and of the ``cable``, the other end of its link, on the bridge.
    """

    number: int
    name: str
    address: str
    namespace: str
    interface: str
    cable: str

    def enter(self, command: Sequence[str]) -> list[str]:
        """Return the words that run ``command`` on this host; it dies with the thread that started it."""
        return ["ip", "netns", "exec", self.namespace, *ENTER, self.name, *command]


def system(*words: str) -> str:
    """Run ``ip`` or ``tc`` and return what it prints.

    Raises LabError with the command and its message.
    """
    # In a session of its own: Ctrl-C is for the lab, which then cleans up by such commands.
    done = subprocess.run(words, capture_output=True, text=True, check=False, start_new_session=True)
    if done.returncode:
        raise LabError(f"{' '.join(words)}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout


@contextlib.contextmanager
def building() -> Iterator[None]:
    """Let one lab of this machine at a time choose names and addresses.

    Raises LabError where another one takes longer than half a minute.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    # A name in the abstract namespace belongs to the network, as the links do, and goes with its process.
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as lock:
        while True:
            try:
                lock.bind("\0sparse-ring-netlab")
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise LabError("another lab is being built on this machine and does not finish") from None
                time.sleep(0.02)
        yield


def make_folder(name: str) -> Path:
    """Make the folder of a lab; ``remove(name)`` takes it away."""
    return Path(tempfile.mkdtemp(prefix=f"{name}-"))


def free_name() -> str:
    """Return a name that no lab of this process has. Raises LabError when all 26 are taken."""
    taken = set(found())
    for letter in LETTERS:
        if (name := f"srl{os.getpid()}{letter}") not in taken:
            return name
    raise LabError(f"this process has {len(LETTERS)} labs already")


def free_subnet() -> str:
    """Return the first three numbers of a /24 network to which no route of this machine leads yet."""
    routes = json.loads(system("ip", "-4", "-j", "route", "show") or "[]")
    used = [ipaddress.ip_network(route["dst"]) for route in routes if route["dst"] != "default"]
    for third in range(256):
        network = ipaddress.ip_network(f"10.213.{third}.0/24")
        if not any(network.overlaps(other) for other in used):
            return f"10.213.{third}"
    raise LabError("all networks from 10.213.0.0/24 to 10.213.255.0/24 are in use")


def make(name: str, count: int) -> list[Host]:
    """Make bridge ``name`` and ``count`` hosts on it. Where this raises, ``remove(name)`` takes away what there is."""
    subnet = free_subnet()
    system("ip", "link", "add", name, "type", "bridge")
    quiet(name)
    system("ip", "addr", "add", f"{subnet}.254/24", "dev", name)
    system("ip", "link", "set", name, "up")
    hosts = [
        Host(number, f"host{number}", f"{subnet}.{number}", f"{name}n{number}", name, f"{name}v{number}")
        for number in range(1, count + 1)
    ]
    for host in hosts:
        system("ip", "netns", "add", host.namespace)
        # The interface is called as the bridge is, so that one name leads to the others everywhere.
        system("ip", "link", "add", host.cable, "type", "veth", "peer", "name", name, "netns", host.namespace)
        quiet(host.cable)
        quiet("-n", host.namespace, host.interface)
        system("ip", "link", "set", host.cable, "master", name, "up")
        system("ip", "-n", host.namespace, "addr", "add", f"{host.address}/24", "dev", host.interface)
        for link in ("lo", host.interface):
            system("ip", "-n", host.namespace, "link", "set", link, "up")
    return hosts


def quiet(*where: str) -> None:
    """Keep IPv6, where the kernel has it, from announcing itself on a link, which would be counted."""
    *options, link = where
    with contextlib.suppress(LabError):
        system("ip", *options, "link", "set", link, "addrgenmode", "none")


def remove(name: str) -> None:
    """Kill what runs on the hosts of a lab and take away links, namespaces, bridge and folder, as far as they exist.

    Raises LabError with the first thing that could not be taken away, after all others were.
    """
    failures: list[LabError] = []

    def attempt(*words: str) -> None:
        try:
            system(*words)
        except LabError as error:
            failures.append(error)

    namespaces = [namespace for namespace in _namespaces() if re.fullmatch(rf"{name}n\d+", namespace)]
    for namespace in namespaces:
        kill_all(namespace)
    # Links first: a namespace that is deleted keeps its links alive for a while.
    for link in sorted((link for link in _links() if re.fullmatch(rf"{name}(v\d+)?", link)), reverse=True):
        attempt("ip", "link", "del", link)
    for namespace in namespaces:
        attempt("ip", "netns", "del", namespace)
    for folder in Path(tempfile.gettempdir()).glob(f"{name}-*"):
        shutil.rmtree(folder, ignore_errors=True)
    if failures:
        raise failures[0]


def kill_all(namespace: str) -> None:
    """Kill every process in a namespace, and those that they start meanwhile.

    Raises LabError naming the processes that stay.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while pids := [pid for pid in map(int, system("ip", "netns", "pids", namespace).split()) if is_running(pid)]:
        if time.monotonic() > deadline:
            raise LabError(f"processes {pids} in {namespace} cannot be killed")
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def remove_leftovers() -> list[str]:
    """Take away the labs whose processes have died without doing so, and return their names."""
    left = [name for name, pid in found().items() if not is_running(pid)]
    for name in left:
        remove(name)
    return left


def found() -> dict[str, int]:
    """Return the labs of which anything exists on this machine, by name, with the pid of the owner of each."""
    matches = [match for name in [*_namespaces(), *_links()] if (match := NAME.fullmatch(name))]
    return {match["lab"]: int(match["pid"]) for match in matches}


def is_running(pid: int) -> bool:
    """Return whether a process exists and has not ended: one that only waits to be reaped has."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def _namespaces() -> list[str]:
    return [line.split()[0] for line in system("ip", "netns", "list").splitlines() if line.strip()]


def _links() -> list[str]:
    return [path.name for path in LINKS.iterdir()]
