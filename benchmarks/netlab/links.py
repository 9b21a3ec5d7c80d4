"""How fast a link is: rates, and the queueing disciplines that hold both of its ends to them."""

from __future__ import annotations

import re

from benchmarks.netlab.namespaces import Host, system

UNSHAPED = "unshaped"
_RATE = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>[kmg]?)bit", re.IGNORECASE)
_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}
# What may leave at once after a pause. The kernel wakes late, on a busy machine by a millisecond and more, and a bucket that
# is full by then loses rate: of 1gbit, 64 KiB (half a millisecond) reached 69 % in one run; in four interleaved rounds on two
# cores that five times as much work wanted, one millisecond's worth reached 97.4 to 99.1 %, two milliseconds' 98.3 to 100.1 %.
BURST_SECONDS = 0.002
SMALLEST_BURST_BYTES = 4096
QUEUE = "50ms"


def bits_per_second(rate: str) -> float | None:
    """Return a rate such as ``100mbit`` or ``2.5gbit`` in bit/s; None for ``unshaped``.

    Raises ValueError for what is no rate.
    """
    if rate == UNSHAPED:
        return None
    match = _RATE.fullmatch(rate)
    bits = float(match["number"]) * _UNITS[match["unit"].lower()] if match else 0.0
    if not bits >= 1000:
        raise ValueError(
            f"{rate!r} is no rate; write 100mbit, 1gbit or another number of at least 1kbit, or {UNSHAPED}"
        )
    return bits


def burst_bytes(bits: float) -> int:
    """Return how many bytes may leave at once at a rate in bit/s."""
    return max(SMALLEST_BURST_BYTES, round(bits / 8 * BURST_SECONDS))


def shape(host: Host, rate: str) -> None:
    """Hold what a host sends and what it receives to ``rate`` each.

    A link without a limit gets a plain queue, for this counts as well what passes (see counters.py). Changing from one kind
    to the other starts the counts again. Raises LabError where the kernel cannot do it.
    """
    bits = bits_per_second(rate)
    if bits is None:
        discipline = ["pfifo", "limit", "100000"]
    else:
        discipline = ["tbf", "rate", f"{round(bits)}bit", "burst", f"{burst_bytes(bits)}b", "latency", QUEUE]
    for where, link in ((["-n", host.namespace], host.interface), ([], host.cable)):
        system("tc", *where, "qdisc", "replace", "dev", link, "root", *discipline)
