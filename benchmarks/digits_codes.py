"""How well does the example train with each value code? Three seeds of TopK at 1 % on two ranks, Dense as peer.

    python -m benchmarks.digits_codes [--json PATH]

Runs the example as ``benchmarks.digits`` does; what coding loses is kept by error feedback.
"""

from __future__ import annotations

import statistics
import sys
from typing import Any

from benchmarks.digits import train
from benchmarks.measure import parse_arguments, print_table, write_json
from sparse_ring.encode import VALUE_NAMES

SEEDS = range(3)
DENSITY = "0.01"


def settings() -> dict[str, tuple[str, list[str]]]:
    """Recipe and options by what they are called in the table."""
    found: dict[str, tuple[str, list[str]]] = {"dense": ("dense", [])}
    for code in VALUE_NAMES.values():
        found[code.name] = ("topk", ["--density", DENSITY, "--values", code.name])
    found["int4, small int8"] = ("topk", ["--density", DENSITY, "--values", "int4", "--small", "int8"])
    return found


def main() -> None:
    arguments = parse_arguments(__doc__)
    figures: dict[str, Any] = {}
    for name, (recipe, options) in settings().items():
        print(f"\r{name} …                ", end="", file=sys.stderr, flush=True)
        runs = [train(recipe, options, seed) for seed in SEEDS]
        figures[name] = {key: [run[key] for run in runs] for key in runs[0]}
    print(file=sys.stderr)
    print_table(
        f"digits on 2 ranks, mean of {len(SEEDS)} seeds",
        ["values", "test accuracy %", "lowest", "message ratio"],
        [
            [
                name,
                f"{statistics.mean(runs['accuracy']):.2f}",
                f"{min(runs['accuracy']):.2f}",
                f"{statistics.mean(runs['ratio']):.1f}",
            ]
            for name, runs in figures.items()
        ],
    )
    write_json(arguments.json, "training", figures)


if __name__ == "__main__":
    main()
