"""One rank of the benchmark: all arms in turn, in one job, and rank 0 writes what it saw.

Rounds go through the arms forwards and backwards in turn, so that a drift of the machine meets all alike. Within a round an
arm takes a few steps between two barriers; the slowest rank's time counts.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import sparse_ring.torch as hvd
from benchmarks.slow_link.arms import KINDS, Arm, start_torch
from benchmarks.slow_link.task import Digits
from sparse_ring.session import current


def sent(interface: str) -> tuple[int, int]:
    """Return bytes and packets that this host's link has sent (see netlab/counters.py)."""
    if not interface:
        return 0, 0
    shown = subprocess.run(["tc", "-s", "-j", "qdisc", "show", "dev", interface], capture_output=True, check=True)
    root = next(queue for queue in json.loads(shown.stdout) if queue.get("root"))
    return root["bytes"], root["packets"]


def busy_seconds() -> float:
    """Return the seconds that all cores together have worked, for whomever."""
    with open("/proc/stat") as file:
        user, nice, system, _, _, irq, softirq = map(int, file.readline().split()[1:8])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def slowest(seconds: float) -> float:
    """Return the largest of all ranks' times."""
    value = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(value, dist.ReduceOp.MAX)
    return float(value)


def block(arm: Arm, data: Digits, first: int, steps: int) -> float:
    """Take some steps; returns seconds a step."""
    batches = [data.batch(first + number) for number in range(steps)]
    dist.barrier()
    began = time.perf_counter()
    for batch in batches:
        arm.step(batch)
    return slowest(time.perf_counter() - began) / steps


def measure_speed(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return seconds a step of each arm and round, and what a step sends."""
    data = Digits(hvd.rank(), hvd.size(), arguments.batch, 0)
    arms = {name: KINDS[name].make(0, 0.01) for name in arguments.arms}
    done = dict.fromkeys(arms, 0)
    result: dict[str, Any] = {name: {"seconds": [], "bytes": 0, "packets": 0, "steps": 0} for name in arms}
    for round_number in range(arguments.rounds + 1):
        names = list(arms) if round_number % 2 else list(reversed(arms))
        for name in names:
            # The first round warms up: buckets are rebuilt, thresholds found, PowerSGD has begun.
            steps = arguments.steps if round_number else arguments.warmup
            before, counted, worked = sent(arguments.interface), current().metrics.copy(), busy_seconds()
            seconds = block(arms[name], data, done[name], steps)
            done[name] += steps
            if round_number:
                worked = busy_seconds() - worked
                after, entry = sent(arguments.interface), result[name]
                entry["busy_seconds"] = entry.get("busy_seconds", 0.0) + worked
                entry["seconds"].append(seconds)
                entry["bytes"] += after[0] - before[0]
                entry["packets"] += after[1] - before[1]
                entry["steps"] += steps
                ours = current().metrics.since(counted)
                for field in ("sent_bytes", "control_bytes", "exposed_seconds", "exchange_seconds"):
                    entry[field] = entry.get(field, 0) + getattr(ours, field)
        if hvd.rank() == 0:
            print(f"round {round_number} of {arguments.rounds}", flush=True)
    return result


def train(arguments: argparse.Namespace, run: str) -> dict[str, Any]:
    """Train an arm from scratch up to an accuracy; ``run`` is ``arm;lr;seed``. Returns steps, seconds and accuracies."""
    name, lr, seed = run.split(";")
    data = Digits(hvd.rank(), hvd.size(), arguments.batch, int(seed))
    arm = KINDS[name].make(int(seed), float(lr))
    reached, seconds, step = 0, 0.0, 0
    accuracies: list[float] = []
    while step < arguments.most_steps and not reached:
        seconds += arguments.every * block(arm, data, step, arguments.every)
        step += arguments.every
        # Replicas that differ between their meetings are judged by the mean that they would meet in; it is not timed.
        accuracies.append(data.accuracy(arm.model if KINDS[name].exchanges else mean_of(arm.model)))
        # Twice in a row: one good evaluation may be luck.
        if min(accuracies[-2:]) >= arguments.accuracy and len(accuracies) > 1:
            reached = step
    return {
        "arm": name,
        "lr": float(lr),
        "seed": int(seed),
        "steps": reached,
        "seconds": seconds,
        "accuracies": accuracies,
    }


def mean_of(model: torch.nn.Module) -> torch.nn.Module:
    """Return the mean of all ranks' replicas."""
    mean = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in mean.parameters():
            dist.all_reduce(parameter)
            parameter /= dist.get_world_size()
    return mean


def train_all(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Train all runs, one after the other."""
    results = []
    for number, run in enumerate(arguments.runs, 1):
        results.append(train(arguments, run))
        if hvd.rank() == 0:
            last = results[-1]
            print(
                f"run {number} of {len(arguments.runs)}: {run}: {last['steps']} steps, {last['seconds']:.1f} s",
                flush=True,
            )
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arms", nargs="+", default=list(KINDS))
    parser.add_argument("--batch", type=int, default=32, help="images a rank and step")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=4, help="steps an arm and round")
    parser.add_argument("--warmup", type=int, default=12)
    parser.add_argument("--interface", default="")
    parser.add_argument("--runs", nargs="+", metavar="ARM;LR;SEED", help="train these up to --accuracy instead")
    parser.add_argument("--accuracy", type=float, default=0.97)
    parser.add_argument("--most-steps", type=int, default=600)
    parser.add_argument("--every", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    hvd.init()
    start_torch()
    torch.set_num_threads(1)
    result: Any = train_all(arguments) if arguments.runs else measure_speed(arguments)
    if hvd.rank() == 0 and arguments.json:
        arguments.json.write_text(json.dumps(result))
    hvd.barrier()
    hvd.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
