"""Rates as text, and how much may leave at once."""

from __future__ import annotations

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
