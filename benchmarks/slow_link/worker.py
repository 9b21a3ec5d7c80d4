"""One rank of the benchmark: all arms in turn, in one job, and rank 0 writes what it saw.

Rounds go through the arms forwards and backwards in turn, so that a drift of the machine meets all alike. Within a round an
arm takes a few steps between two barriers; the slowest rank's time counts.
"""

from __future__ import annotations

import argparse
import json
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


def measure_speed(arguments: argparse.Namespace, data: Digits) -> dict[str, Any]:
    """Return seconds a step of each arm and round, and what a step sends."""
    arms = {name: KINDS[name].make(0, 0.01) for name in arguments.arms}
    done = dict.fromkeys(arms, 0)
    result: dict[str, Any] = {name: {"seconds": [], "bytes": 0, "packets": 0, "steps": 0} for name in arms}
    for round_number in range(arguments.rounds + 1):
        names = list(arms) if round_number % 2 else list(reversed(arms))
        for name in names:
            # The first round warms up: buckets are rebuilt, thresholds found, PowerSGD has begun.
            steps = arguments.steps if round_number else arguments.warmup
            before, counted = sent(arguments.interface), current().metrics.copy()
            seconds = block(arms[name], data, done[name], steps)
            done[name] += steps
            if round_number:
                after, entry = sent(arguments.interface), result[name]
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


def train(arguments: argparse.Namespace, data: Digits) -> dict[str, Any]:
    """Train one arm up to an accuracy; returns steps, seconds and the accuracies on the way."""
    arm = KINDS[arguments.arms[0]].make(arguments.seed, arguments.lr)
    reached, seconds, step = 0, 0.0, 0
    accuracies: list[float] = []
    while step < arguments.most_steps and not reached:
        seconds += arguments.every * block(arm, data, step, arguments.every)
        step += arguments.every
        # Replicas that differ between their meetings are judged together, as the mean that they would meet in.
        model = _mean(arm.model) if not KINDS[arguments.arms[0]].exchanges else arm.model
        accuracies.append(data.accuracy(model))
        if accuracies[-1] >= arguments.accuracy and len(accuracies) > 1 and accuracies[-2] >= arguments.accuracy:
            reached = step
    return {"steps": reached, "seconds": seconds if reached else None, "accuracies": accuracies}


def _mean(model: torch.nn.Module) -> torch.nn.Module:
    import copy

    mean = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in mean.parameters():
            dist.all_reduce(parameter)
            parameter /= dist.get_world_size()
    return mean


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arms", nargs="+", default=list(KINDS))
    parser.add_argument("--batch", type=int, default=32, help="images a rank and step")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=4, help="steps an arm and round")
    parser.add_argument("--warmup", type=int, default=12)
    parser.add_argument("--interface", default="")
    parser.add_argument(
        "--accuracy", type=float, default=0.0, help="train the one arm up to this test accuracy instead"
    )
    parser.add_argument("--most-steps", type=int, default=600)
    parser.add_argument("--every", type=int, default=5)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    hvd.init()
    start_torch()
    torch.set_num_threads(1)
    data = Digits(hvd.rank(), hvd.size(), arguments.batch, arguments.seed)
    result = train(arguments, data) if arguments.accuracy else measure_speed(arguments, data)
    if hvd.rank() == 0 and arguments.json:
        arguments.json.write_text(json.dumps(result))
    hvd.barrier()
    hvd.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
