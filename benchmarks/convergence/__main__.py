"""Train every arm on every task; what is done stays done, so that it can be spread over several calls.

    python -m benchmarks.convergence [--quick] [--tasks digits cancer mlp gpt] [--arms ARM …] [--minutes N]

Each arm's learning rate is tuned first, with the same budget for all: three rates, one seed of its own, the best end wins. Then
it is trained with seeds 0, 1, 2, …, the same for all arms; on short tasks dense and the default GradSA with 30. Two ranks, one
thread each. Results are lines of JSON in docs/results/convergence/; ``python -m benchmarks.convergence.page`` makes the page.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.convergence.arms import DEFAULT, PAIRED_SEEDS, QUICK_ARMS, TUNING_SEED, WANTED, rates_of
from benchmarks.convergence.tasks import TASKS, better

FOLDER = Path("docs/results/convergence")
RANKS = 2
# Runs of one job: what a failure may cost, against starting Python and MPI again.
MOST_TOGETHER = 8


def done(path: Path) -> list[dict[str, Any]]:
    """Return the runs that a file has."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def best_rate(task: str, arm: str, runs: list[dict[str, Any]]) -> float | None:
    """Return the rate whose tuning run ended best; None where one of them is missing."""
    tuning = {run["lr"]: run["metric"][-1] for run in runs if run["arm"] == arm and run["seed"] == TUNING_SEED}
    if any(rate not in tuning for rate in rates_of(arm, task)):
        return None
    best = rates_of(arm, task)[0]
    for rate in rates_of(arm, task):
        if better(TASKS[task].metric, tuning[rate], tuning[best]):
            best = rate
    return best


def missing(task: str, arms: list[str], seeds: int, paired: int, runs: list[dict[str, Any]]) -> tuple[list[str], int]:
    """Return the runs that can be done next, and how many are left in all."""
    have = {(run["arm"], run["lr"], run["seed"]) for run in runs}
    ready, left = [], 0
    for arm in arms:
        wanted = max(seeds, paired) if arm in ("dense", DEFAULT) else seeds
        rate = best_rate(task, arm, runs)
        if rate is None:
            tuning = [
                f"{arm};{one};{TUNING_SEED}" for one in rates_of(arm, task) if (arm, one, TUNING_SEED) not in have
            ]
            ready += tuning
            left += len(tuning) + wanted
        else:
            own = [f"{arm};{rate};{seed}" for seed in range(wanted) if (arm, rate, seed) not in have]
            ready += own
            left += len(own)
    return ready, left


class Progress:
    """Says how far it is, and by the mean of what a run took how long it will go on."""

    def __init__(self, deadline: float) -> None:
        self._deadline, self._seconds, self._runs = deadline, 0.0, 0

    def over(self) -> bool:
        """Return whether the time is up."""
        return time.monotonic() > self._deadline

    def count(self, task: str, seconds: float, runs: int, left: int) -> None:
        """Note that some runs took so long, and say it."""
        self._seconds, self._runs = self._seconds + seconds, self._runs + runs
        minutes = self._seconds / self._runs * left / 60
        print(f"{task}: {runs} runs in {seconds:.0f} s; {left} left, about {minutes:.0f} min", flush=True)


def train(task: str, path: Path, runs: list[str]) -> None:
    """Do some runs in one job; ends the program where it fails."""
    worker = [sys.executable, "-m", "benchmarks.convergence.worker", task, str(path), *runs]
    launcher = [sys.executable, "-m", "sparse_ring.launcher.main", "-np", str(RANKS)]
    environment = {**os.environ, "SPARSE_RING_PROGRESS": "0", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path.cwd())}
    subprocess.run([*launcher, *worker], check=True, env=environment)


def complete(task: str, arms: list[str], seeds: int, paired: int, progress: Progress) -> None:
    """Do all runs of a task that are missing, until the time is up."""
    path = FOLDER / f"{task}.jsonl"
    while not progress.over():
        ready, left = missing(task, arms, seeds, paired, done(path))
        if not ready:
            return
        began, chunk = time.monotonic(), ready[:MOST_TOGETHER]
        train(task, path, chunk)
        progress.count(task, time.monotonic() - began, len(chunk), left - len(chunk))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--arms", nargs="+", metavar="ARM", help="these only")
    parser.add_argument(
        "--quick", action="store_true", help="digits and cancer, seven arms, two seeds: under 10 minutes"
    )
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing new after this time")
    arguments = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    progress = Progress(time.monotonic() + 60 * arguments.minutes)
    for task in arguments.tasks if not arguments.quick else ["digits", "cancer"]:
        arms, seeds = WANTED[task]
        arms = [arm for arm in arms if arguments.arms is None or arm in arguments.arms]
        paired = PAIRED_SEEDS if task in ("digits", "cancer") else 0
        if arguments.quick:
            arms, seeds, paired = QUICK_ARMS, 2, 0
        complete(task, arms, seeds, paired, progress)


if __name__ == "__main__":
    main()
