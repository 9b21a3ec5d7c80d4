"""How well does the example train, in how many bytes? Five seeds of each recipe on two ranks.

    python -m benchmarks.digits [--json PATH]

Runs ``sparse-ring-run -np 2 python examples/digits.py`` and reads what it prints: the test accuracy and hash of each rank,
and the message ratio from the table (after warm-up where the recipe has one).
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import parse_arguments, print_table, write_json

RECIPES = [("dense", []), ("bf16", []), ("topk", ["--density", "0.01"]), ("gradsa", ["--density", "0.01"])]
SEEDS = range(5)
RANKS = 2
LAUNCHER = Path(sys.executable).parent / "sparse-ring-run"
EXAMPLE = Path(__file__).parent.parent / "examples" / "digits.py"


def train(recipe: str, options: list[str], seed: int) -> dict[str, Any]:
    """Run the example once; fails where replicas differ."""
    command = [str(LAUNCHER), "-np", str(RANKS), sys.executable, str(EXAMPLE), "--recipe", recipe, "--seed", str(seed)]
    began = time.perf_counter()
    done = subprocess.run([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True)
    ranks = re.findall(r"test accuracy ([\d.]+) %, parameter hash ([0-9a-f]{16})", done.stdout)
    if len(ranks) != RANKS or len(set(ranks)) != 1:
        raise SystemExit(f"{recipe}, seed {seed}: the ranks' results differ or are missing:\n{done.stdout}")
    ratios = [cells.split("│")[-2] for cells in re.findall(r"│ message ratio .*", done.stdout)]
    return {"accuracy": float(ranks[0][0]), "ratio": float(ratios[0]), "seconds": time.perf_counter() - began}


def main() -> None:
    arguments = parse_arguments(__doc__)
    figures: dict[str, Any] = {}
    for number, (recipe, options) in enumerate(RECIPES):
        runs = []
        for seed in SEEDS:
            print(f"\r{recipe} {number + 1}/{len(RECIPES)}, seed {seed} …   ", end="", file=sys.stderr, flush=True)
            runs.append(train(recipe, options, seed))
        figures[recipe] = {name: [run[name] for run in runs] for name in runs[0]}
    print(file=sys.stderr)
    print_table(
        f"digits on {RANKS} ranks, mean of {len(SEEDS)} seeds",
        ["recipe", "test accuracy %", "lowest", "message ratio", "seconds"],
        [
            [
                recipe,
                f"{statistics.mean(runs['accuracy']):.2f}",
                f"{min(runs['accuracy']):.2f}",
                f"{statistics.mean(runs['ratio']):.1f}",
                f"{statistics.mean(runs['seconds']):.1f}",
            ]
            for recipe, runs in figures.items()
        ],
    )
    write_json(arguments.json, "digits", figures)


if __name__ == "__main__":
    main()
