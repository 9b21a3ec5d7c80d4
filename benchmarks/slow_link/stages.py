"""What does a rank's engine spend processor time on? A table of stages, on the hosts and links of the lab.

    python -m benchmarks.slow_link.stages [--hosts 4] [--rate 100mbit] [--arm "sparse_ring gradsa 0.1 %"]

Stages lie within one another: ``Engine._take_turn`` holds ``Control.exchange``, for one. Timers cost a little themselves.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch

import sparse_ring.torch as hvd
from benchmarks.measure import print_table
from benchmarks.netlab.lab import Lab
from benchmarks.slow_link.arms import KINDS
from benchmarks.slow_link.task import Digits
from sparse_ring.engine.control import Control
from sparse_ring.engine.engine import Engine
from sparse_ring.engine.queue import Queue
from sparse_ring.gradient.gathered import GatheredGradient

STAGES: list[tuple[type, str]] = [
    (GatheredGradient, "prepare"), (Engine, "_take_turn"), (Engine, "_compose"), (Control, "exchange"), (Engine, "_run"),
    (Engine, "_await_turn"), (Queue, "next_turn"), (Control, "arrived"),
]  # fmt: skip
WARMUP, STEPS = 14, 60


def timed(kind: type, name: str, seconds: Counter[str], calls: Counter[str]) -> None:
    """Let a method count the processor time of its thread."""
    method, label = getattr(kind, name), f"{kind.__name__}.{name}"

    def counted(*arguments: Any, **named: Any) -> Any:
        began = time.thread_time()
        try:
            return method(*arguments, **named)
        finally:
            seconds[label] += time.thread_time() - began
            calls[label] += 1

    setattr(kind, name, counted)


def run_rank(arm_name: str, batch: int) -> None:
    """Train, and print rank 0's table."""
    seconds: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for kind, name in STAGES:
        timed(kind, name, seconds, calls)
    hvd.init()
    torch.set_num_threads(1)
    data = Digits(hvd.rank(), hvd.size(), batch, 0)
    arm = KINDS[arm_name].make(0, 0.01)
    batches = [data.batch(step) for step in range(WARMUP + STEPS)]
    for number, images in enumerate(batches):
        if number == WARMUP:
            seconds.clear()
            calls.clear()
            own, wall = time.thread_time(), time.perf_counter()
        arm.step(images)
    own, wall = time.thread_time() - own, time.perf_counter() - wall
    if hvd.rank() == 0:
        rows = [
            [name, f"{1000 * value / STEPS:.2f}", f"{calls[name] / STEPS:.1f}"] for name, value in seconds.most_common()
        ]
        rows += [["training thread", f"{1000 * own / STEPS:.2f}", ""], ["wall", f"{1000 * wall / STEPS:.2f}", ""]]
        print_table(f"{arm_name}: a rank's processor time", ["stage", "ms a step", "calls a step"], rows)
    hvd.barrier()
    hvd.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--rate", default="100mbit")
    parser.add_argument("--arm", default="sparse_ring gradsa 0.1 %", choices=list(KINDS))
    parser.add_argument("--batch", type=int, default=72)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank:
        run_rank(arguments.arm, arguments.batch)
        return
    with Lab(arguments.hosts, arguments.rate) as lab:
        command = [sys.executable, "-m", "benchmarks.slow_link.stages", "--rank", "--arm", arguments.arm]
        environment: dict[str, str] = {"SPARSE_RING_PROGRESS": "0", "PYTHONPATH": str(Path.cwd())}
        result = lab.run(
            [*command, "--batch", str(arguments.batch)], starter="mpi", environment=environment, timeout=300
        )
    print(result.stdout[0] if result.returncode == 0 else result.stderr[-3000:])
    sys.exit(result.returncode)


if __name__ == "__main__":
    main()
