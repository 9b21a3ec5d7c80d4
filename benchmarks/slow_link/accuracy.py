"""How soon does training reach a fixed accuracy on a slow link?

    python -m benchmarks.slow_link.accuracy [--hosts 4] [--rate 100mbit] [--json PATH]

First each arm's learning rate is tuned, with the same budget for all and without a slow link (steps do not depend on it):
every rate once, on a seed of its own; the one with the fewest steps wins. Then each arm trains from scratch on the slow link
with several seeds, the same for all arms, and the clock runs from the first step on, warm-up and all. Last, dense and sparse arms
train for a fixed number of steps without a slow link, to compare the accuracies that they end with, seed by seed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import print_table, write_json
from benchmarks.netlab.lab import Lab

ARMS = [
    "sparse_ring dense", "sparse_ring gradsa 1 %", "sparse_ring gradsa 0.1 %", "sparse_ring topk 1 %", "ddp fp32", "ddp fp16",
    "ddp powersgd rank 1", "ddp powersgd rank 4", "post-local sgd",
]  # fmt: skip
RATES = [0.02, 0.05, 0.1]
TUNING_SEED = 100
# Whose final accuracies are compared; the first is what the others must not fall behind.
FINAL_ARMS = ["sparse_ring dense", "sparse_ring gradsa 1 %", "sparse_ring gradsa 0.1 %"]
FINAL_SEEDS, FINAL_STEPS = 10, 300
TIMEOUT_SECONDS = 7200


def options(arguments: argparse.Namespace, path: Path, runs: list[str], accuracy: float, most_steps: int) -> list[str]:
    """Return the command of a rank."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.slow_link.worker",
        "--json",
        str(path),
        "--batch",
        str(arguments.batch),
    ]
    return [*command, "--accuracy", str(accuracy), "--most-steps", str(most_steps), "--runs", *runs]


def on_one_host(
    arguments: argparse.Namespace, runs: list[str], accuracy: float, most_steps: int
) -> list[dict[str, Any]]:
    """Train all runs up to an accuracy or a number of steps, without a slow link."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        launcher = [sys.executable, "-m", "sparse_ring.launcher.main", "-np", str(arguments.hosts)]
        environment = {**os.environ, "SPARSE_RING_PROGRESS": "0", "PYTHONPATH": str(Path.cwd())}
        command = [*launcher, *options(arguments, path, runs, accuracy, most_steps)]
        subprocess.run(command, check=True, env=environment, timeout=TIMEOUT_SECONDS)
        return json.loads(path.read_text())


def tuned(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Train each arm with each learning rate on one host."""
    runs = [f"{arm};{rate};{TUNING_SEED}" for arm in ARMS for rate in RATES]
    return on_one_host(arguments, runs, arguments.accuracy, arguments.most_steps)


def final(arguments: argparse.Namespace, rates: dict[str, float]) -> list[dict[str, Any]]:
    """Train dense and sparse arms for as many steps each; an accuracy that nobody reaches does not stop them."""
    runs = [f"{arm};{rates[arm]};{200 + seed}" for seed in range(FINAL_SEEDS) for arm in FINAL_ARMS]
    return on_one_host(arguments, runs, 2.0, FINAL_STEPS)


def best_rates(runs: list[dict[str, Any]]) -> dict[str, float]:
    """Return each arm's learning rate with the fewest steps; of arms that never got there, the one that came nearest."""
    chosen = {}
    for arm in ARMS:
        own = [run for run in runs if run["arm"] == arm]
        best = min(own, key=lambda run: (run["steps"] or 10**9, -max(run["accuracies"])))
        chosen[arm] = best["lr"]
    return chosen


def timed(arguments: argparse.Namespace, rates: dict[str, float]) -> list[dict[str, Any]]:
    """Train all arms and seeds on the slow link; arms take turns, so that a drift of the machine meets all alike."""
    runs = []
    for seed in range(arguments.seeds):
        order = ARMS if seed % 2 == 0 else ARMS[::-1]
        runs += [f"{arm};{rates[arm]};{seed}" for arm in order]
    with Lab(arguments.hosts, arguments.rate) as lab, tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        environment = {
            "LAB_ADDRESS": lab.addresses[0],
            "GLOO_SOCKET_IFNAME": lab.interface,
            "SPARSE_RING_PROGRESS": "0",
            "PYTHONPATH": str(Path.cwd()),
        }
        command = options(arguments, path, runs, arguments.accuracy, arguments.most_steps)
        result = lab.run(command, starter="mpi", environment=environment, timeout=TIMEOUT_SECONDS, show=True)
        if result.returncode:
            raise SystemExit(f"exit code {result.returncode}\n{result.stderr[-3000:]}")
        return json.loads(path.read_text())


def show(figures: dict[str, Any], arguments: argparse.Namespace) -> None:
    """Print one row an arm: learning rate, steps, seconds."""
    rows = []
    for arm in ARMS:
        own = [run for run in figures["timed"] if run["arm"] == arm]
        reached = [run for run in own if run["steps"]]
        steps = ", ".join(str(run["steps"] or "never") for run in own)
        seconds = [run["seconds"] for run in reached]
        middle = f"{median(seconds):.1f}" if len(reached) == len(own) else "-"
        rows.append([arm, str(figures["rates"][arm]), steps, ", ".join(f"{value:.1f}" for value in seconds), middle])
    title = (
        f"{arguments.hosts} hosts at {arguments.rate}: to {100 * arguments.accuracy:.1f} % test accuracy; learning rates tuned "
        f"with {len(RATES)} runs an arm"
    )
    print_table(title, ["arm", "lr", "steps by seed", "seconds by seed", "median s"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--rate", default="100mbit")
    parser.add_argument("--batch", type=int, default=32, help="images a rank and step")
    parser.add_argument("--accuracy", type=float, default=0.97)
    parser.add_argument("--most-steps", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="keeps the tuning, so that a run that was interrupted goes on")
    arguments = parser.parse_args()
    known = json.loads(arguments.json.read_text()) if arguments.json and arguments.json.exists() else {}
    figures: dict[str, Any] = known.get("accuracy", {})
    if "tuning" not in figures:
        figures["tuning"] = tuned(arguments)
        write_json(arguments.json, "accuracy", figures)
    figures["rates"] = best_rates(figures["tuning"])
    if "timed" not in figures:
        figures["timed"] = timed(arguments, figures["rates"])
        write_json(arguments.json, "accuracy", figures)
    if "final" not in figures:
        figures["final"] = final(arguments, figures["rates"])
        write_json(arguments.json, "accuracy", figures)
    show(figures, arguments)


if __name__ == "__main__":
    main()
