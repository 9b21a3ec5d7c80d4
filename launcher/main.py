"""The command line of ``sparse-ring-run``."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from io import FileIO
from pathlib import Path

from sparse_ring.config import process_environment
from sparse_ring.errors import SparseRingError

from .job import Job
from .mpi import find_mpi
from .output import Screen
from .report import report_environment, write_report

_EPILOG = """\
Everything after the first word that is not an option is the command:

  sparse-ring-run -np 4 python train.py --lr 0.1

Each line of a rank is shown with its number in front. When a rank fails, it is named, the others are ended (SIGTERM,
after 3 s SIGKILL) and its exit code is returned, 128 + the signal's number where one killed it. Ctrl-C ends all ranks.

The ranks find SPARSE_RING_LAUNCHER=1, PYTHONUNBUFFERED=1 and, unless you set it, OMP_NUM_THREADS = cores / ranks in
their environment. Input that is not a terminal goes to rank 0.
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    result = argparse.ArgumentParser(
        prog="sparse-ring-run",
        usage="sparse-ring-run -np N [--verbose] [--report DIR] command [argument ...]",
        description="Start a command on N ranks of this host under the MPI that is installed.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    result.add_argument("-np", "--num-proc", type=_count, required=True, metavar="N", help="number of ranks")
    result.add_argument("--verbose", action="store_true", help="say what is started and show MPI's own messages")
    result.add_argument(
        "--report", metavar="DIR", help="record metrics in this folder; afterwards write plots and a page there"
    )
    result.add_argument(
        "command", nargs=argparse.REMAINDER, help="the program that every rank runs, with its arguments"
    )
    return result


def rank_environment(environment: Mapping[str, str], ranks: int, cores: int, python: str) -> dict[str, str]:
    """Return the environment of the ranks: this one, what the launcher promises, and ``python``'s folder on PATH."""
    result = dict(environment)
    result.update(SPARSE_RING_LAUNCHER="1", PYTHONUNBUFFERED="1")
    if not result.get("OMP_NUM_THREADS"):
        result["OMP_NUM_THREADS"] = str(max(1, cores // ranks))
    folder = str(Path(python).parent)
    search = result.get("PATH", os.defpath)
    if folder not in search.split(os.pathsep):
        # Called by its path out of an environment that is not activated: "python" then means that environment's.
        result["PATH"] = os.pathsep.join([folder, search])
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``sparse-ring-run``; returns its exit code."""
    line = parser()
    options = line.parse_args(arguments)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        line.error("no command was given, as in: sparse-ring-run -np 4 python train.py")
    environment = rank_environment(process_environment(), options.num_proc, _cores(), sys.executable)
    if shutil.which(command[0], path=environment["PATH"]) is None:
        hint = f"; did you mean: python {command[0]}" if command[0].endswith(".py") else ""
        line.error(f"{command[0]} is not a program that can be found{hint}")
    screen = Screen(
        FileIO(1, "wb", closefd=False), FileIO(2, "wb", closefd=False), colour=not environment.get("NO_COLOR")
    )
    try:
        mpi = find_mpi(environment)
        environment |= report_environment(options.report) if options.report else {}
        code = Job(command, options.num_proc, mpi, environment, screen, verbose=options.verbose).run()
        if options.report:
            screen.say(write_report(options.report, environment))
        return code
    except SparseRingError as error:
        screen.say(str(error))
        return 1


def _count(text: str) -> int:
    value = int(text) if text.isdigit() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of ranks; give a whole number from 1 up")
    return value


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


if __name__ == "__main__":
    sys.exit(main())
