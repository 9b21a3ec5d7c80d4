"""Starts a command on the hosts, as torchrun does or by sparse-ring-run, and ends it as a whole."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from benchmarks.netlab.counters import Traffic
from benchmarks.netlab.namespaces import Host, kill_all
from benchmarks.netlab.output import Output
from benchmarks.netlab.signals import put_off

LAUNCHER = [sys.executable, "-m", "sparse_ring.launcher.main"]
# Each lab has its own networks, so this port is free on its first host.
MASTER_PORT = "29500"
GRACE_SECONDS = 5.0
# sparse-ring-run promises to have ended its ranks within ten.
LAUNCHER_GRACE_SECONDS = 15.0
# Rank and exit code of each process, in the order in which they ended.
Ends: TypeAlias = "queue.SimpleQueue[tuple[int, int]]"
RANK_LINE = re.compile(r"\[rank (?P<rank>\d+)\] (?P<text>.*)", re.DOTALL)


@dataclass(frozen=True)
class Job:
    """What is to be run: ``environment`` is what is added to this process's, ``launcher_options`` are sparse-ring-run's."""

    command: Sequence[str]
    hosts: Sequence[Host]
    ranks_per_host: int
    environment: Mapping[str, str]
    timeout: float | None
    show: bool
    launcher_options: Sequence[str]

    @property
    def ranks(self) -> int:
        """Number of ranks on all hosts."""
        return len(self.hosts) * self.ranks_per_host


@dataclass(frozen=True)
class Ended:
    """How a job ended: the exit code of the rank that failed first (128 + the number of a signal), ``stdout`` of each rank,
    ``stderr`` of all, each line with its rank in front.
    """

    returncode: int
    stdout: list[str]
    stderr: str


@dataclass(frozen=True)
class Result(Ended):
    """The same with what each host sent and received meanwhile, the first host first, and how long it took."""

    traffic: list[Traffic]
    seconds: float


def with_torch(job: Job) -> Ended:
    """Start one process a rank with the variables by which torch.distributed finds the others."""
    output = Output(job.ranks, job.show)
    ends: Ends = queue.SimpleQueue()
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(job.ranks):
            process = start(job.hosts[rank // job.ranks_per_host].enter(job.command), torch_environment(job, rank))
            processes.append(process)
            output.read(process.stdout, partial(output.out, rank))
            output.read(process.stderr, partial(output.error, rank))
            threading.Thread(target=report_end, args=(process, rank, ends), daemon=True).start()
        code = first_failure(job, ends)
    except queue.Empty:
        raise output.expired(job.command, job.timeout) from None
    finally:
        clear(job, processes, GRACE_SECONDS, output)
    return Ended(code, output.stdout, output.stderr)


def report_end(process: subprocess.Popen[bytes], rank: int, ends: Ends) -> None:
    """Put rank and exit code into ``ends`` when a process has ended."""
    ends.put((rank, process.wait()))


def torch_environment(job: Job, rank: int) -> dict[str, str]:
    """Return the whole environment of a rank. What the job sets itself wins over what torch needs."""
    return {
        **os.environ,
        "RANK": str(rank),
        "WORLD_SIZE": str(job.ranks),
        "LOCAL_RANK": str(rank % job.ranks_per_host),
        "LOCAL_WORLD_SIZE": str(job.ranks_per_host),
        "MASTER_ADDR": job.hosts[0].address,
        "MASTER_PORT": MASTER_PORT,
        "GLOO_SOCKET_IFNAME": job.hosts[0].interface,
        "PYTHONUNBUFFERED": "1",
        **job.environment,
    }


def first_failure(job: Job, ends: Ends) -> int:
    """Return the exit code of the rank that fails first, or 0 when all have ended. Raises queue.Empty when time is up."""
    deadline = None if job.timeout is None else time.monotonic() + job.timeout
    for _ in range(job.ranks):
        _, code = ends.get(timeout=None if deadline is None else max(0.0, deadline - time.monotonic()))
        if code:
            return exit_code(code)
    return 0


def with_mpi(job: Job) -> Ended:
    """Let sparse-ring-run start the ranks over MPICH, a script standing for ssh. Its own traffic is counted as well."""
    output = Output(job.ranks, job.show)
    variables = [word for name, value in job.environment.items() for word in ("-x", f"{name}={value}")]
    launcher = [*LAUNCHER, "-np", str(job.ranks), *job.launcher_options, *variables, *job.command]

    def out(line: str) -> None:
        if match := RANK_LINE.fullmatch(line):
            output.out(int(match["rank"]), match["text"])
        else:
            output.error(None, line)

    # The launcher ends its ranks when it gets this signal, so they go with the lab.
    process = start(["setpriv", "--pdeathsig", "TERM", *launcher], dict(os.environ))
    try:
        output.read(process.stdout, out)
        output.read(process.stderr, partial(output.error, None))
        code = exit_code(process.wait(job.timeout))
    except subprocess.TimeoutExpired:
        raise output.expired(job.command, job.timeout) from None
    finally:
        clear(job, [process], LAUNCHER_GRACE_SECONDS, output)
    return Ended(code, output.stdout, output.stderr)


STARTERS: dict[str, Callable[[Job], Ended]] = {"torch": with_torch, "mpi": with_mpi}


def start(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a process that reads nothing and writes into pipes, in a session of its own."""
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment,
        start_new_session=True,
    )  # fmt: skip


def clear(job: Job, processes: Sequence[subprocess.Popen[bytes]], grace_seconds: float, output: Output) -> None:
    """End what still runs, kill what the ranks have left on the hosts, and take the last lines."""
    with put_off():
        end(processes, grace_seconds)
        for host in job.hosts:
            kill_all(host.namespace)
        output.close()


def end(processes: Sequence[subprocess.Popen[bytes]], grace_seconds: float) -> None:
    """End what still runs: SIGTERM, and after ``grace_seconds`` SIGKILL, to each process with what it has started."""
    running = [process for process in processes if process.poll() is None]
    deadline = time.monotonic() + grace_seconds
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in running:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
        for process in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(None if number == signal.SIGKILL else max(0.0, deadline - time.monotonic()))


def exit_code(code: int) -> int:
    """Return a shell's exit code for what Popen gives: 128 + number where a signal ended the process."""
    return code if code >= 0 else 128 - code
