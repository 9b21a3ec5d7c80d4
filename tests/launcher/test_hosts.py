"""Hosts by option and file, their ranks, and this host's addresses."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from sparse_ring.errors import SparseRingError
from sparse_ring.launcher.hosts import (
    Host,
    address_of,
    address_towards,
    as_text,
    is_local,
    parse_hosts,
    place,
    read_hostfile,
)


def test_hosts_of_the_option() -> None:
    assert parse_hosts("h1:2, 10.0.0.2,h1:1") == (Host("h1", 3), Host("10.0.0.2", 1))


@pytest.mark.parametrize("text", ["", "h1:0", "h1:x", "h1:2:3", "a b", "h1,,h2"])
def test_wrong_hosts_are_named(text: str) -> None:
    wrong = next(part for part in text.split(",") if part != "h1")
    with pytest.raises(SparseRingError, match=f"^-H: {re.escape(repr(wrong))} is no host; write host:2 or, in "):
        parse_hosts(text)


def test_host_file(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("# cluster\nh1 slots=2   # first\n\nh2:3\nh3\nh4 slots = 4\nh1:1\n")
    assert read_hostfile(str(path)) == (Host("h1", 3), Host("h2", 3), Host("h3", 1), Host("h4", 4))


def test_wrong_host_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    with pytest.raises(SparseRingError, match=r"^The host file .*/hosts cannot be read: \[Errno 2\]"):
        read_hostfile(str(path))
    path.write_text("# nobody\n")
    with pytest.raises(SparseRingError, match=r"^The host file .*/hosts names no host; give a line such as"):
        read_hostfile(str(path))
    path.write_text("h1\nh2 max_slots=2\n")
    with pytest.raises(SparseRingError, match=r"^.*/hosts, line 2: 'h2 max_slots=2' is no host"):
        read_hostfile(str(path))


def test_first_host_is_filled_first() -> None:
    hosts = (Host("h1", 2), Host("h2", 2), Host("h3", 2))
    assert place(hosts, 3) == (Host("h1", 2), Host("h2", 1))
    assert place(hosts, 6) == hosts
    assert as_text(place(hosts, 4)) == "h1:2,h2:2"
    with pytest.raises(SparseRingError, match=r"^7 ranks do not fit on h1:2,h2:2,h3:2, which have 6 slots; give"):
        place(hosts, 7)


def test_this_host_is_known() -> None:
    assert is_local("localhost")
    assert is_local("127.0.0.1")
    assert is_local(socket.gethostname())
    assert not is_local("192.0.2.1")
    assert not is_local("no-such-host.invalid")


def test_address_of_an_interface() -> None:
    assert address_of("lo") == "127.0.0.1"
    with pytest.raises(
        SparseRingError, match=r"^The network interface nope of this host does not exist .* has: .*\blo"
    ):
        address_of("nope")


def test_without_an_address_for_others_the_interface_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "localhost")
    with pytest.raises(SparseRingError, match=r"could report to; give --network-interface\.$"):
        address_towards(["localhost", "no-such-host.invalid"])
