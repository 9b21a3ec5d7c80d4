"""What the lab says was sent is what was sent."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import benchmarks.netlab
from benchmarks.netlab import Lab, Traffic
from benchmarks.netlab.counters import table

STREAM = Path(benchmarks.netlab.__file__).with_name("stream.py")
SENT_BYTES = 20_000_000


def stream(lab: Lab) -> list[Traffic]:
    """Send the bytes from host 2 to host 1 over a plain socket."""
    result = lab.run([sys.executable, str(STREAM), str(SENT_BYTES)])
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout[0])["bytes"] == SENT_BYTES
    return result.traffic


@pytest.mark.parametrize("rate", ["unshaped", "1gbit", "200mbit"])
def test_payload_of_a_known_transfer_is_counted(lab: Lab, rate: str) -> None:
    lab.set_rate(rate)
    receiver, sender = stream(lab)
    assert sender.sent_payload_bytes == pytest.approx(SENT_BYTES, rel=0.01)
    assert receiver.received_payload_bytes == pytest.approx(SENT_BYTES, rel=0.01)
    # As a cable would carry it: no packet is larger than Ethernet's, so there are this many and each has its headers.
    assert sender.sent_packets >= SENT_BYTES / 1448
    assert sender.sent_bytes >= SENT_BYTES * (1 + 66 / 1448)
    # The way back carries acknowledgements.
    assert abs(receiver.sent_payload_bytes) < 0.001 * SENT_BYTES
    assert receiver.sent_packets > 0


def test_counts_go_on_when_links_change(lab: Lab) -> None:
    stream(lab)
    changes: list[Callable[[], None]] = [
        lambda: lab.set_rate("500mbit"), lambda: lab.set_rate("1gbit", host=2), lambda: lab.down(2),
        lambda: lab.up(2), lambda: lab.set_rate("unshaped"),
    ]  # fmt: skip
    for change in changes:
        before = lab.traffic()[1].sent_payload_bytes
        change()
        assert lab.traffic()[1].sent_payload_bytes >= before >= 0.99 * SENT_BYTES
    stream(lab)
    assert lab.traffic()[1].sent_payload_bytes == pytest.approx(2 * SENT_BYTES, rel=0.01)


def test_silence_is_counted_as_nothing(lab: Lab) -> None:
    for counted in lab.run(["sleep", "0.2"]).traffic:
        assert counted.sent_bytes < 1000
        assert counted.received_bytes < 1000


def test_table_has_a_line_for_each_host_and_the_sum() -> None:
    header, rows = table([Traffic(1000, 2, 3000, 4, 1), Traffic(5000, 6, 7000, 8, 0)])
    assert len(header) == len(rows[0])
    assert [row[0] for row in rows] == ["host1", "host2", "all"]
    assert rows[2][1:] == ["6,000", "8", "5,472", "10,000", "12", "9,208", "1"]
