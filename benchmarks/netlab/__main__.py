"""Run a command on several hosts, played by network namespaces, over links as slow as you say.

    python -m benchmarks.netlab --hosts 4 --rate 100mbit -- python examples/digits.py --recipe gradsa

Prints the ranks' lines as they come, then what each host sent and received. The exit code is that of the rank that
failed first, or 2 where the lab cannot be made. Needs Linux, root and iproute2.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from benchmarks.measure import print_table
from benchmarks.netlab import counters
from benchmarks.netlab.lab import Lab, missing
from benchmarks.netlab.links import UNSHAPED, bits_per_second
from benchmarks.netlab.namespaces import LabError

STARTERS = {"mpiexec": "mpi", "torch": "torch"}
NOT_POSSIBLE = 2
TIME_IS_UP = 124


def rate(text: str) -> str:
    """Return ``text`` where it is a rate."""
    try:
        bits_per_second(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def parse(words: list[str]) -> argparse.Namespace:
    """Read the command line; what follows ``--`` is the command."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.netlab", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", type=int, default=2, metavar="N", help="number of hosts (2)")
    parser.add_argument(
        "--rate", type=rate, default=UNSHAPED, help=f"of each link, either way: 100mbit, 2.5gbit, … ({UNSHAPED})"
    )
    parser.add_argument("--ranks-per-host", type=int, default=1, metavar="N", help="ranks on each host (1)")
    parser.add_argument(
        "--with", dest="starter", choices=list(STARTERS), default="mpiexec",
        help="who starts the ranks: sparse-ring-run over mpiexec, or one process a rank with torchrun's variables",
    )  # fmt: skip
    parser.add_argument("--timeout", type=float, metavar="S", help="end the ranks after so many seconds")
    parser.add_argument("command", nargs="+", help="what every rank runs")
    return parser.parse_args(words)


def main(words: list[str]) -> int:
    """Run what the command line says and return the exit code."""
    arguments = parse(words)
    if reasons := missing():
        for reason in reasons:
            print(f"netlab: {reason}", file=sys.stderr)
        return NOT_POSSIBLE
    try:
        with Lab(arguments.hosts, arguments.rate) as lab:
            result = lab.run(
                arguments.command,
                ranks_per_host=arguments.ranks_per_host,
                starter=STARTERS[arguments.starter],
                timeout=arguments.timeout,
                show=True,
            )
    except (LabError, ValueError) as error:
        print(f"netlab: {error}", file=sys.stderr)
        return NOT_POSSIBLE
    except subprocess.TimeoutExpired:
        print(f"netlab: ended after {arguments.timeout:g} s", file=sys.stderr)
        return TIME_IS_UP
    except KeyboardInterrupt:
        return 130
    print_table(
        f"{arguments.hosts} hosts, links {arguments.rate}, {result.seconds:.1f} s; "
        f"payload: without {counters.FRAMING_BYTES} bytes a packet",
        *counters.table(result.traffic),
    )
    return result.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
