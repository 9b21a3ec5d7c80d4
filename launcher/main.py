"""The command ``sparse-ring-run``: from its options to a job."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from sparse_ring.config import process_environment
from sparse_ring.errors import SparseRingError

from .base import Mpi, Start, complete
from .check import check_build
from .hosts import Host, address_of, address_towards, is_local, parse_hosts, place, read_hostfile
from .job import Job, Settings
from .mpi import find_mpi
from .options import chosen_variables, mpi_arguments, parser, shell_line
from .output import Screen
from .report import report_environment, write_report


@dataclass(frozen=True, slots=True)
class Run:
    """What the command line asks for: ``start`` under ``mpi`` with ``environment``, watched as ``settings`` say."""

    start: Start
    mpi: Mpi
    environment: dict[str, str]
    settings: Settings


def rank_environment(environment: Mapping[str, str], ranks: int, cores: int, python: str) -> dict[str, str]:
    """Return the environment of the ranks: this one, what the launcher promises, and ``python``'s folder on PATH.

    ``ranks`` share ``cores``; with 0 cores, which stands for hosts that are not this one, torch's threads are left to
    ``init()``, which counts the cores of each host.
    """
    result = dict(environment)
    result.update(SPARSE_RING_LAUNCHER="1", PYTHONUNBUFFERED="1")
    if cores and not result.get("OMP_NUM_THREADS"):
        result["OMP_NUM_THREADS"] = str(max(1, cores // ranks))
    folder = str(Path(python).parent)
    search = result.get("PATH", os.defpath)
    if folder not in search.split(os.pathsep):
        # Called by its path out of an environment that is not activated: "python" then means that environment's.
        result["PATH"] = os.pathsep.join([folder, search])
    return result


def plan(options: argparse.Namespace, command: Sequence[str], given: Mapping[str, str]) -> Run:
    """Find MPI and hosts, and put together what is to be run with the environment ``given``.

    Raises SparseRingError where the options ask for what cannot be.
    """
    chosen = chosen_variables(options, given) | (report_environment(options.report) if options.report else {})
    environment = rank_environment({**given, **chosen}, options.num_proc, 0, sys.executable)
    hosts = _hosts(options)
    start = Start(
        ranks=options.num_proc,
        program=tuple(command),
        # An MPI that is told this host by name may want ssh for it.
        hosts=() if all(is_local(host.name) for host in hosts) else hosts,
        interface=options.network_interface,
        ssh_port=options.ssh_port,
        ssh_identity=options.ssh_identity_file,
        passed=tuple(sorted({name for name, _ in options.variables})),
        extra=mpi_arguments(options.mpi_args),
    )
    mpi = find_mpi(environment, hosts=bool(hosts))
    remote = mpi.remote_hosts(start)
    address = ""
    if remote:
        address = address_of(start.interface) if start.interface else address_towards(remote)
    else:
        environment = rank_environment(environment, options.num_proc, _cores(), sys.executable)
    environment.update(mpi.variables(start, environment))
    settings = Settings(
        address=address,
        output_folder=options.output_filename,
        start_timeout=options.start_timeout,
        verbose=options.verbose,
    )
    return Run(start, mpi, environment, settings)


def describe(run: Run, given: Mapping[str, str]) -> str:
    """Return the line for the shell that ``--dry-run`` prints: all that differs from the environment ``given``.

    Where ranks report to is known only when a job runs; a word in capitals stands for it.
    """
    reports = ["--connect", f"{run.settings.address}:PORT"] if run.settings.address else ["--socket", "PATH"]
    line = run.mpi.command(complete(run.start, reports, run.environment))
    changed = {name: value for name, value in run.environment.items() if given.get(name) != value}
    return shell_line(changed, line)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``sparse-ring-run``; returns its exit code."""
    line = parser()
    options = line.parse_args(arguments)
    given = process_environment()
    if options.check_build:
        text, complete_ = check_build(rank_environment(given, 1, 0, sys.executable))
        print(text)
        return 0 if complete_ else 1
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if options.num_proc is None:
        line.error("the following arguments are required: -np/--num-proc")
    if not command:
        line.error("no command was given, as in: sparse-ring-run -np 4 python train.py")
    screen = Screen(FileIO(1, "wb", closefd=False), FileIO(2, "wb", closefd=False), colour=not given.get("NO_COLOR"))
    try:
        run = plan(options, command, given)
        if options.dry_run:
            print(describe(run, given))
            return 0
        _require(command[0], run.environment["PATH"], line)
        code = Job(run.start, run.mpi, run.environment, screen, run.settings).run()
        if options.report:
            screen.say(write_report(options.report, run.environment))
        return code
    except SparseRingError as error:
        screen.say(str(error))
        return 1


def _hosts(options: argparse.Namespace) -> tuple[Host, ...]:
    if options.hosts:
        return place(parse_hosts(options.hosts), options.num_proc)
    return place(read_hostfile(options.hostfile), options.num_proc) if options.hostfile else ()


def _require(program: str, search: str, line: argparse.ArgumentParser) -> None:
    if shutil.which(program, path=search) is None:
        hint = f"; did you mean: python {program}" if program.endswith(".py") else ""
        line.error(f"{program} is not a program that can be found{hint}")


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


if __name__ == "__main__":
    sys.exit(main())
