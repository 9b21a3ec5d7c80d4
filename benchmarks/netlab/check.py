"""What do the lab's links carry? A TCP stream's rate, and the time of an allreduce over MPI, between two hosts.

    python -m benchmarks.netlab.check [--rates 10mbit,100mbit,1gbit,10gbit,unshaped] [--json PATH]

``reached`` is payload over time from the first byte to the last, the best of three; ``of the wire`` adds each packet's
framing. ``allreduce`` is the median time to sum 1 MB of float32 on two ranks, ``at the wire's rate`` what its bytes alone take.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.measure import print_table, write_json
from benchmarks.netlab.counters import FRAMING_BYTES
from benchmarks.netlab.lab import Lab, missing
from benchmarks.netlab.links import bits_per_second

RATES = "10mbit,100mbit,1gbit,10gbit,unshaped"
STREAM = Path(__file__).with_name("stream.py")
SECONDS = 2.0
# Where no rate says how much that is.
UNSHAPED_BITS = 10e9
REPEATS = 3
PACKET_BYTES = 1448
MEGABYTE = 1_000_000
ALLREDUCE = """
import statistics, time
import numpy
from mpi4py import MPI
world, times = MPI.COMM_WORLD, []
mine, total = numpy.ones(250_000, numpy.float32), numpy.empty(250_000, numpy.float32)
for _ in range(11):
    world.Barrier()
    began = time.perf_counter()
    world.Allreduce(mine, total)
    times.append(time.perf_counter() - began)
print(statistics.median(times[1:]))
"""


def measure(lab: Lab, rate: str) -> dict[str, Any]:
    """Return bit/s of payload and the seconds of an allreduce at a rate."""
    bits = bits_per_second(rate)
    lab.set_rate(rate)
    size = int((bits or UNSHAPED_BITS) / 8 * SECONDS)
    reached = []
    for _ in range(REPEATS):
        stream = lab.run([sys.executable, str(STREAM), str(size)])
        if stream.returncode:
            raise SystemExit(stream.stderr)
        told = json.loads(stream.stdout[0])
        reached.append(told["bytes"] * 8 / told["seconds"])
    allreduce = lab.run([sys.executable, "-c", ALLREDUCE], starter="mpi")
    if allreduce.returncode:
        raise SystemExit(allreduce.stderr)
    wire = None if bits is None else MEGABYTE * 8 * (1 + FRAMING_BYTES / PACKET_BYTES) / bits
    return {
        "bits_per_second": bits,
        "reached_bits_per_second": max(reached),
        "allreduce_seconds": float(allreduce.stdout[0]),
        "wire_seconds": wire,
    }


def row(rate: str, figures: dict[str, Any]) -> list[str]:
    """Return the cells of one rate."""
    reached, bits, wire = figures["reached_bits_per_second"], figures["bits_per_second"], figures["wire_seconds"]
    return [
        rate,
        f"{reached / 1e6:,.1f}",
        "" if bits is None else f"{reached * (1 + FRAMING_BYTES / PACKET_BYTES) / bits:.1%}",
        f"{figures['allreduce_seconds'] * 1e3:,.1f}",
        "" if wire is None else f"{wire * 1e3:,.1f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file")
    parser.add_argument("--rates", default=RATES, help=f"which ({RATES})")
    arguments = parser.parse_args()
    if reasons := missing():
        print("\n".join(f"netlab: {reason}" for reason in reasons), file=sys.stderr)
        raise SystemExit(2)
    figures = {}
    with Lab(hosts=2) as lab:
        for rate in arguments.rates.split(","):
            print(f"\r{rate} …        ", end="", file=sys.stderr, flush=True)
            figures[rate] = measure(lab, rate)
    print(file=sys.stderr)
    print_table(
        "two hosts, one link each",
        ["rate", "reached Mbit/s", "of the wire", "allreduce of 1 MB, ms", "at the wire's rate, ms"],
        [row(rate, figures[rate]) for rate in figures],
    )
    write_json(arguments.json, "netlab", figures)


if __name__ == "__main__":
    main()
