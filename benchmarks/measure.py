"""What the benchmarks share: interleaved timing, bounds of medians, tables, JSON with the machine it was measured on."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from math import comb
from pathlib import Path
from typing import Any


def rounds(
    candidates: Mapping[str, Callable[[], object]],
    repeats: int,
    *,
    before: Callable[[], object] = lambda: None,
) -> dict[str, list[float]]:
    """Return each candidate's seconds in each of ``repeats`` rounds.

    Rounds alternate their order (A B, B A, …), so that a drift of the machine meets all candidates alike; ``before`` runs
    untimed ahead of each call, and one round warms up.
    """
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    names = list(candidates)
    for round_number in range(repeats + 1):
        for name in names if round_number % 2 else reversed(names):
            before()
            start = time.perf_counter()
            candidates[name]()
            if round_number:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def interleaved(
    candidates: Mapping[str, Callable[[], object]],
    repeats: int,
    *,
    before: Callable[[], object] = lambda: None,
    summary: Callable[[Sequence[float]], float] = statistics.median,
) -> dict[str, float]:
    """Return each candidate's median seconds over ``repeats`` rounds, or what ``summary`` makes of them; see :func:`rounds`."""
    return {name: summary(times) for name, times in rounds(candidates, repeats, before=before).items()}


def ratio_of(numerators: Sequence[float], denominators: Sequence[float]) -> dict[str, float]:
    """Return the median of the rounds' ratios, and what it exceeds with 95 % confidence."""
    ratios = [a / b for a, b in zip(numerators, denominators, strict=True)]
    return {"median": statistics.median(ratios), "at_least": lower_bound(ratios)}


def lower_bound(values: Sequence[float], confidence: float = 0.95) -> float:
    """Return what the median exceeds with this confidence, whatever the distribution: an order statistic (sign test)."""
    ordered, tail, index = sorted(values), 0.0, 0
    while index < len(ordered):
        tail += comb(len(ordered), index) / 2 ** len(ordered)
        if tail > 1 - confidence:
            break
        index += 1
    return ordered[index - 1] if index else float("-inf")


def parse_arguments(description: str | None) -> argparse.Namespace:
    """Parse the command line that all benchmarks share."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file")
    return parser.parse_args()


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print right-aligned columns, the first one left-aligned."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    print(f"\n{title}")
    for row in [header, *rows]:
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        print("  ".join([row[0].ljust(widths[0]), *cells[1:]]))


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown, first column left, the others right."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def processor() -> str:
    """Name of this machine's processor, where the system tells it."""
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def write_json(path: Path | None, name: str, figures: Mapping[str, Any]) -> None:
    """Put the figures under ``name`` into the JSON file, next to those of other benchmarks."""
    if path is None:
        return
    record = json.loads(path.read_text()) if path.exists() else {}
    record["machine"] = {"processor": processor(), "cores": os.cpu_count(), "python": platform.python_version()}
    record[name] = figures
    path.write_text(json.dumps(record, indent=2) + "\n")
