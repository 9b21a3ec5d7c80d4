"""The options of ``sparse-ring-run``, and what they mean as variables of the ranks."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from sparse_ring.config import PREFIX, Config
from sparse_ring.errors import ConfigError, SparseRingError

_EPILOG = """\
Everything after the first word that is not an option is the command:

  sparse-ring-run -np 4 python train.py --lr 0.1
  sparse-ring-run -np 4 -H host1:2,host2:2 python train.py

Each line of a rank is shown with its number in front. When a rank fails, it is named, the others are ended (SIGTERM,
after 3 s SIGKILL), its traceback is shown last, and its exit code is returned, 128 + the signal's number where one
killed it. Ctrl-C ends all ranks.

On other hosts, ssh must work without a password, and Python, sparse_ring, the command and its data must lie in the same
places. Ranks there report to this host over TCP. In a Slurm allocation, srun starts the ranks on the allocation's hosts.

The ranks find SPARSE_RING_LAUNCHER=1 and PYTHONUNBUFFERED=1 in their environment and, on one host and unless you set
it, OMP_NUM_THREADS = cores / ranks. Input that is not a terminal goes to rank 0.
"""


class Setting(NamedTuple):
    """An option that becomes the variable of a ``field`` of Config; ``convert`` makes the variable's text."""

    option: str
    field: str
    metavar: str
    help: str
    convert: Callable[[str], str] = str


def _mebibytes(text: str) -> str:
    try:
        return str(round(float(text) * (1 << 20)))
    except (ValueError, OverflowError):
        return text


SETTINGS = (
    Setting("--fusion-threshold-mb", "fusion_threshold", "MB", "size of a bucket of tensors in MiB", _mebibytes),
    Setting("--cycle-time-ms", "cycle_time", "MS", "how long a bucket waits for more tensors"),
    Setting("--cache-capacity", "cache_capacity", "N", "tensors whose agreement is remembered"),
    Setting("--stall-check-warning-time-seconds", "stall_check_time_seconds", "S", "when a stalled tensor is reported"),
    Setting(
        "--stall-check-shutdown-time-seconds",
        "stall_shutdown_time_seconds",
        "S",
        "when a stalled tensor raises; 0: never",
    ),
    Setting("--log-level", "log_level", "LEVEL", "trace, debug, info, warning, error or fatal"),
    Setting("--timeline-filename", "timeline", "FILE", "write a Chrome trace of all ranks", os.path.abspath),
)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    result = argparse.ArgumentParser(
        prog="sparse-ring-run",
        usage="sparse-ring-run -np N [option ...] command [argument ...]",
        description="Start a command on N ranks, here or on several hosts, under the MPI or Slurm that is installed.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = result.add_argument
    add("-np", "--num-proc", type=_count, metavar="N", help="number of ranks")
    add("--verbose", action="store_true", help="say what is started and show MPI's own messages")
    add("--dry-run", action="store_true", help="print the command line and the variables, start nothing")
    add("-cb", "--check-build", action="store_true", help="print what this installation has, and whether it works")
    _add_hosts(result.add_argument_group("hosts"))
    ranks = result.add_argument_group("ranks")
    ranks.add_argument(
        "-x", dest="variables", action="append", default=[], type=_variable, metavar="VAR[=VALUE]",
        help="set a variable, or pass one on by name to MPIs that do not pass all; may be repeated",
    )  # fmt: skip
    ranks.add_argument(
        "--output-filename", default="", metavar="DIR", help="copy output to DIR/rank.N/stdout and stderr"
    )
    ranks.add_argument(
        "--report", metavar="DIR", help="record metrics in this folder; afterwards write plots and a page there"
    )
    ranks.add_argument("--mpi-args", default="", metavar="ARGS", help="more options for mpiexec or srun, in one word")
    _add_settings(result.add_argument_group("settings (SPARSE_RING_ variables)"))
    add("command", nargs=argparse.REMAINDER, help="the program that every rank runs, with its arguments")
    return result


def _add_hosts(group: argparse._ArgumentGroup) -> None:
    which = group.add_mutually_exclusive_group()
    which.add_argument("-H", "--hosts", default="", metavar="HOST:N,...", help="hosts and how many ranks each may get")
    which.add_argument("--hostfile", default="", metavar="FILE", help="the same, a line each: HOST slots=N or HOST:N")
    group.add_argument("--network-interface", default="", metavar="IF", help="for MPI, torch and the ranks' reports")
    group.add_argument("-p", "--ssh-port", type=_port, default=0, metavar="PORT", help="port of ssh on the hosts")
    group.add_argument(
        "-i", "--ssh-identity-file", type=_no_blanks, default="", metavar="FILE", help="private key for ssh"
    )
    group.add_argument(
        "--start-timeout",
        type=_seconds,
        default=60.0,
        metavar="S",
        help="end where ranks are missing after S seconds (60)",
    )


def _add_settings(group: argparse._ArgumentGroup) -> None:
    for setting in SETTINGS:
        group.add_argument(setting.option, dest=setting.field, metavar=setting.metavar, help=setting.help)
    group.add_argument("--stall-check", action=argparse.BooleanOptionalAction, help="report stalled tensors, or do not")


def chosen_variables(options: argparse.Namespace, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the options set: the settings, then those of ``-x``, which win.

    Raises SparseRingError naming the option whose value cannot be, or the variable of ``-x`` that is not set.
    """
    result: dict[str, str] = {}
    for setting in SETTINGS:
        given = getattr(options, setting.field)
        if given is not None:
            name = PREFIX + setting.field.upper()
            result[name] = setting.convert(given)
            try:
                Config.from_environment({name: result[name]})
            except ConfigError as error:
                expected = str(error).partition("must be ")[2]
                raise SparseRingError(f"{setting.option} is {given!r}, but the variable must be {expected}") from None
    if options.stall_check is not None:
        result[f"{PREFIX}STALL_CHECK_DISABLE"] = "0" if options.stall_check else "1"
    for name, value in options.variables:
        if value is None and name not in environment:
            raise SparseRingError(f"-x {name}: this variable is not set; give its value with -x {name}=VALUE.")
        result[name] = environment[name] if value is None else value
    return result


def mpi_arguments(text: str) -> tuple[str, ...]:
    """Split ``--mpi-args`` as a shell would. Raises SparseRingError where quotes are left open."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise SparseRingError(f"--mpi-args {text!r} cannot be split into words: {error}.") from None


def shell_line(variables: Mapping[str, str], command: Iterable[str]) -> str:
    """Return a line for the shell that runs ``command`` with ``variables``."""
    settings = [f"{name}={shlex.quote(value)}" for name, value in sorted(variables.items())]
    return " ".join(["env", *settings, shlex.join(command)])


def _count(text: str) -> int:
    value = int(text) if text.isdigit() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of ranks; give a whole number from 1 up")
    return value


def _port(text: str) -> int:
    value = int(text) if text.isdigit() else 0
    if not 1 <= value <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; give a whole number from 1 to 65535")
    return value


def _no_blanks(text: str) -> str:
    if any(character.isspace() for character in text):
        raise argparse.ArgumentTypeError(f"{text!r} has blanks, which MPI cannot hand to ssh; give a path without")
    return text


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a time; give seconds above 0")
    return value


def _variable(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not a variable; give VAR or VAR=VALUE")
    return name, value if equals else None
