"""Rates as text, and how much may leave at once."""

from __future__ import annotations

import json
import subprocess

import pytest

from benchmarks.netlab import Lab
from benchmarks.netlab.links import bits_per_second, burst_bytes


@pytest.mark.parametrize(
    ("text", "bits"),
    [("100mbit", 1e8), ("2.5Gbit", 2.5e9), ("512kbit", 512e3), ("1000bit", 1000.0), ("unshaped", None)],
)
def test_rate_is_read(text: str, bits: float | None) -> None:
    assert bits_per_second(text) == bits


@pytest.mark.parametrize("text", ["", "100", "fast", "100mbps", "-1mbit", "0gbit", "nanmbit", "1 gbit", "999bit"])
def test_what_is_no_rate_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match=rf"'{text}' is no rate; write 100mbit"):
        bits_per_second(text)
    with pytest.raises(ValueError, match="is no rate"):
        Lab(rate=text)


def test_a_slow_link_lets_a_packet_through_and_a_fast_one_two_milliseconds() -> None:
    assert burst_bytes(1e3) > 1514
    assert burst_bytes(10e9) == 2_500_000


@pytest.mark.parametrize("count", [0, 100])
def test_number_of_hosts_is_checked(count: int) -> None:
    with pytest.raises(ValueError, match=f"1 to 99 hosts, not {count}"):
        Lab(hosts=count)


def limits(lab: Lab) -> list[int | None]:
    """Bytes per second that both ends of each host's link are held to, as the kernel tells it; None without a limit."""
    words = [(host.interface, ["-n", host.namespace]) for host in lab.hosts] + [(host.cable, []) for host in lab.hosts]
    told = []
    for link, where in words:
        line = ["tc", *where, "-j", "qdisc", "show", "dev", link]
        queues = json.loads(subprocess.run(line, check=True, capture_output=True, text=True).stdout)
        told.append(queues[0]["options"].get("rate"))
    return told


def test_both_ends_of_each_link_are_held_to_the_rate(lab: Lab) -> None:
    assert limits(lab) == [None] * 4
    lab.set_rate("100mbit")
    assert limits(lab) == [12_500_000] * 4
    lab.set_rate("1gbit", host=2)
    lab.down(1)
    lab.up(1)
    assert limits(lab) == [12_500_000, 125_000_000] * 2
    lab.set_rate("unshaped")
    assert limits(lab) == [None] * 4


def test_rate_that_is_none_changes_nothing(lab: Lab) -> None:
    lab.set_rate("100mbit")
    with pytest.raises(ValueError, match="'slow' is no rate"):
        lab.set_rate("slow")
    assert limits(lab) == [12_500_000] * 4
