"""Which hosts a job runs on: ``-H``, host files, and where this host can be reached from the others."""

from __future__ import annotations

import fcntl
import re
import socket
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sparse_ring.errors import SparseRingError

_ENTRY = re.compile(r"(?P<name>[^\s:=,]+)(?:(?::|\s+slots\s*=\s*)(?P<slots>[1-9][0-9]*))?")
_SIOCGIFADDR = 0x8915
_ANY_PORT = 9


@dataclass(frozen=True, slots=True)
class Host:
    """A host's ``name`` (or IPv4 address), as ssh takes it, and how many ranks it has room for (``slots`` >= 1)."""

    name: str
    slots: int = 1


def parse_hosts(text: str) -> tuple[Host, ...]:
    """Read ``host1:2,host2`` (one slot where no number is given); slots of a host that is named again add up.

    Raises SparseRingError naming the entry that is no host.
    """
    return _merged(_entry(part.strip(), "-H") for part in text.split(","))


def read_hostfile(path: str) -> tuple[Host, ...]:
    """Read a host file: a line ``host slots=2`` or ``host:2`` or ``host`` each; ``#`` begins a comment.

    Raises SparseRingError naming file and line of what is no host, or the file that cannot be read or names no host.
    """
    try:
        lines = Path(path).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SparseRingError(f"The host file {path} cannot be read: {error}.") from None
    texts = [(number, line.partition("#")[0].strip()) for number, line in enumerate(lines, 1)]
    hosts = _merged(_entry(text, f"{path}, line {number}") for number, text in texts if text)
    if not hosts:
        raise SparseRingError(f"The host file {path} names no host; give a line such as: host1 slots=2")
    return hosts


def place(hosts: Sequence[Host], ranks: int) -> tuple[Host, ...]:
    """Return the hosts that get ranks, ``slots`` being how many: the first is filled first, as all MPIs do it.

    Raises SparseRingError where the ranks do not fit.
    """
    placed, left = [], ranks
    for host in hosts:
        if left:
            placed.append(Host(host.name, min(left, host.slots)))
            left -= placed[-1].slots
    if left:
        raise SparseRingError(
            f"{ranks} ranks do not fit on {as_text(hosts)}, which have {ranks - left} slots; give more slots or hosts."
        )
    return tuple(placed)


def as_text(hosts: Iterable[Host]) -> str:
    """Return ``host1:2,host2:1``."""
    return ",".join(f"{host.name}:{host.slots}" for host in hosts)


def is_local(name: str) -> bool:
    """Return whether ``name`` is this host; one that cannot be resolved (an alias that only ssh knows) is not."""
    if name in ("localhost", socket.gethostname()):
        return True
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Only an address of this host can be bound.
            probe.bind((socket.gethostbyname(name), 0))
        except OSError:
            return False
    return True


def address_of(interface: str) -> str:
    """Return the IPv4 address of a network interface of this host.

    Raises SparseRingError naming the interfaces that exist where this one does not or has no address.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            request = struct.pack("256s", interface.encode()[:15])
            return socket.inet_ntoa(fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)[20:24])
        except OSError:
            known = ", ".join(name for _, name in socket.if_nameindex())
            raise SparseRingError(
                f"The network interface {interface} of this host does not exist or has no IPv4 address; it has: {known}."
            ) from None


def address_towards(names: Iterable[str]) -> str:
    """Return the IPv4 address by which this host reaches the others, and they it.

    Raises SparseRingError where no name leads to one that other hosts can use.
    """
    for name in [*names, socket.gethostname()]:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                # Sends nothing, but chooses the route.
                probe.connect((socket.gethostbyname(name), _ANY_PORT))
                address = str(probe.getsockname()[0])
            except OSError:
                continue
        if not address.startswith("127."):
            return address
    raise SparseRingError(
        "This host has no address that the ranks on other hosts could report to; give --network-interface."
    )


def _entry(text: str, where: str) -> Host:
    found = _ENTRY.fullmatch(text)
    if found is None:
        raise SparseRingError(f"{where}: {text!r} is no host; write host:2 or, in a host file, host slots=2.")
    return Host(found["name"], int(found["slots"] or 1))


def _merged(hosts: Iterable[Host]) -> tuple[Host, ...]:
    slots: dict[str, int] = {}
    for host in hosts:
        slots[host.name] = slots.get(host.name, 0) + host.slots
    return tuple(Host(name, count) for name, count in slots.items())
