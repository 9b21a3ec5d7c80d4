"""Ranks for tests: as threads of this process, as processes under the mpiexec beside this Python, or as torchrun's."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sparse_ring.config import Config
from sparse_ring.session import Session
from sparse_ring.transport.threads import ThreadWorld

Result = TypeVar("Result")

TIMEOUT_SECONDS = 60.0


def run_ranks(size: int, function: Callable[[Session], Result], config: Config | None = None) -> list[Result]:
    """Run ``function(session)`` on ``size`` ranks, each a thread, and return their results by rank.

    The exception of the rank that failed first is raised again; every rank's traceback goes to stderr. Fails naming the
    ranks that still run after a minute.
    """
    world = ThreadWorld(size)
    config = config or Config()
    results: dict[int, Result] = {}
    failures: list[tuple[int, BaseException]] = []

    def run(rank: int) -> None:
        try:
            with Session(world.transport(rank), config) as session:
                try:
                    results[rank] = function(session)
                except BaseException as error:
                    # Noted before the goodbye, by which the other ranks fail too.
                    failures.append((rank, error))
                    raise
        except BaseException as error:
            if not any(error is known for _, known in failures):
                failures.append((rank, error))
            print(f"--- rank {rank} of {size}:\n{traceback.format_exc()}", file=sys.stderr)

    threads = [threading.Thread(target=run, args=(rank,), name=f"rank-{rank}", daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + TIMEOUT_SECONDS
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    running = [rank for rank, thread in enumerate(threads) if thread.is_alive()]
    if failures:
        raise failures[0][1]
    if running:
        raise TimeoutError(f"ranks {running} of {size} still run after {TIMEOUT_SECONDS:.0f} s")
    return [results[rank] for rank in range(size)]


def start_mpi(size: int, script: Path | str, *args: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Run a script on ``size`` ranks under mpiexec and return how it ended, with stdout and stderr in ``stdout``."""
    root = Path(__file__).parent.parent
    mpiexec = Path(sys.executable).parent / "mpiexec"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root), "PYTHONWARNINGS": "error"}
    command = [str(mpiexec), "-n", str(size), sys.executable, str(script), *args]
    return subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout
    )


def run_mpi(size: int, script: Path | str, *args: str, timeout: float = 120) -> str:
    """Run a script on ``size`` ranks under mpiexec; fails with its output unless it ends with 0. Returns the output."""
    done = start_mpi(size, script, *args, timeout=timeout)
    assert done.returncode == 0, f"{script} on {size} ranks ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


def start_torch(
    size: int,
    script: Path | str,
    *args: str,
    timeout: float = 120,
    ranks: Sequence[int] | None = None,
    settings: Mapping[str, str] | None = None,
) -> list[tuple[int, str]]:
    """Run a script on ``size`` ranks as torchrun would start them; returns each one's exit code and output (stderr too).

    ``ranks``: those that come at all; ``settings``: more variables for them.
    """
    root = Path(__file__).parent.parent
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    environment = {**os.environ, **common, "PYTHONPATH": str(root), "PYTHONWARNINGS": "error", **(settings or {})}
    command = [sys.executable, str(script), *args]
    ranks = range(size) if ranks is None else ranks
    with contextlib.ExitStack() as stack:
        outputs = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in ranks]
        started = [
            subprocess.Popen(command, env={**environment, "RANK": str(rank)}, stdout=output, stderr=subprocess.STDOUT)
            for rank, output in zip(ranks, outputs, strict=True)
        ]
        deadline = time.monotonic() + timeout
        try:
            for process in started:
                process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            pass
        running = [rank for rank, process in zip(ranks, started, strict=True) if process.poll() is None]
        for process in started:
            process.kill()
            process.wait()
        for output in outputs:
            output.seek(0)
        ended = [(process.returncode, output.read()) for process, output in zip(started, outputs, strict=True)]
        assert not running, f"{script}: ranks {running} still ran after {timeout:.0f} s:\n{ended}"
    return ended


def run_torch(
    size: int, script: Path | str, *args: str, timeout: float = 120, settings: Mapping[str, str] | None = None
) -> str:
    """Run a script as torchrun would start it; fails unless all ranks end with 0. Returns their outputs, by rank."""
    ended = start_torch(size, script, *args, timeout=timeout, settings=settings)
    outputs = "".join(output for _, output in ended)
    assert [code for code, _ in ended] == [0] * size, f"{script} ended with {[code for code, _ in ended]}:\n{outputs}"
    return outputs


def same_bits(one: Any, other: Any) -> bool:
    """Return whether two arrays have the same dtype, shape and bytes."""
    return bool(one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes())
