"""What went over the links, counted by the queues at their two ends.

A veth passes on segments of up to 64 KiB and counts each as one packet with one header; switching this off costs so much
time that 1 Gbit/s is not reached. The queues count what a cable would carry: the packets that such a segment is worth, each
with its own headers. So every packet has the same framing, and the rest is payload.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from benchmarks.netlab.namespaces import Host, system

# Ethernet, IPv4, TCP with timestamps, as Linux sends it. SYN packets have 8 more, ARP 24 less in all: a few a connection.
FRAMING_BYTES = 14 + 20 + 32


@dataclass(frozen=True)
class Traffic:
    """What one host sent and received: bytes on the wire, from Ethernet's header on (no preamble, no checksum), and packets.

    ``dropped_packets`` found the link's queue full, on either side; they are in none of the other counts.
    """

    sent_bytes: int = 0
    sent_packets: int = 0
    received_bytes: int = 0
    received_packets: int = 0
    dropped_packets: int = 0

    @property
    def sent_payload_bytes(self) -> int:
        """Bytes that programs sent over TCP, those that TCP sent again included."""
        return self.sent_bytes - FRAMING_BYTES * self.sent_packets

    @property
    def received_payload_bytes(self) -> int:
        """Bytes that arrived for programs over TCP, those that arrived twice included."""
        return self.received_bytes - FRAMING_BYTES * self.received_packets

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))

    def __sub__(self, other: Traffic) -> Traffic:
        return Traffic(*(getattr(self, field.name) - getattr(other, field.name) for field in fields(self)))


def read(host: Host) -> Traffic:
    """Return what a host's queues have counted since they were made."""
    sent = _root(system("tc", "-n", host.namespace, "-s", "-j", "qdisc", "show", "dev", host.interface))
    received = _root(system("tc", "-s", "-j", "qdisc", "show", "dev", host.cable))
    return Traffic(
        sent["bytes"], sent["packets"], received["bytes"], received["packets"], sent["drops"] + received["drops"]
    )


def table(traffic: Sequence[Traffic]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows, one a host and the sum of all."""
    header = ["host", "sent bytes", "packets", "payload", "received bytes", "packets", "payload", "dropped"]
    named = [(f"host{number}", counted) for number, counted in enumerate(traffic, 1)]
    rows = [
        [
            name,
            f"{counted.sent_bytes:,}",
            f"{counted.sent_packets:,}",
            f"{counted.sent_payload_bytes:,}",
            f"{counted.received_bytes:,}",
            f"{counted.received_packets:,}",
            f"{counted.received_payload_bytes:,}",
            f"{counted.dropped_packets:,}",
        ]
        for name, counted in [*named, ("all", sum(traffic, Traffic()))]
    ]
    return header, rows


def _root(text: str) -> Any:
    return next(queue for queue in json.loads(text) if queue.get("root"))
