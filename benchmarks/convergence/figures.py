"""What the curves say: ends against dense seed by seed, ratios, steps and bytes to a target."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from scipy.stats import t as student

from benchmarks.convergence.arms import TUNING_SEED
from benchmarks.convergence.tasks import TASKS

# An arm is as good as dense where the 95 % bound of what it loses is at most this: half a point of accuracy, 1 % of the loss.
MARGINS = {"accuracy": 0.005, "loss": 0.01}
# The target that arms race to: what dense ends with, less this (accuracy), or more by this part (loss).
SLACK = {"accuracy": 0.01, "loss": 0.03}

Run = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One arm on one task.

    apart
        Mean of the paired differences to dense, in the direction of worse: points of accuracy lost, or the loss's relative
        increase; ``bound`` is its upper 95 % bound (one-sided, Student's t), NaN with fewer than two pairs.
    steps, megabytes
        Medians up to the target over the seeds that reached it; ``reached`` of ``seeds`` did.
    step_ratio
        Median seconds a step over dense's.
    """

    arm: str
    lr: float
    seeds: int
    end: float
    spread: float
    apart: float
    bound: float
    ratio: float
    ratio_after_warmup: float
    other_share: float
    reached: int
    steps: float
    megabytes: float
    step_ratio: float


def load(path: Path) -> list[Run]:
    """Return the runs of one task."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def rows(task: str, runs: Sequence[Run]) -> list[Row]:
    """Return a row an arm, in the order in which they first came; tuning runs only where no other is there."""
    metric = TASKS[task].metric
    own = [run for run in runs if run["seed"] != TUNING_SEED]
    dense = {run["seed"]: run for run in own if run["arm"] == "dense"}
    if not dense:
        return []
    target = target_of(metric, [run["metric"][-1] for run in dense.values()])
    pace = median(run["seconds"][-1] for run in dense.values())
    arms = dict.fromkeys(run["arm"] for run in own)
    return [_row(arm, [run for run in own if run["arm"] == arm], dense, metric, target, pace) for arm in arms]


def target_of(metric: str, ends: Sequence[float]) -> float:
    """Return what arms race to, from where dense ends."""
    return mean(ends) - SLACK[metric] if metric == "accuracy" else mean(ends) * (1 + SLACK[metric])


def reaches(metric: str, value: float, target: float) -> bool:
    """Return whether a metric is at the target or beyond."""
    return value >= target if metric == "accuracy" else value <= target


def _row(arm: str, runs: Sequence[Run], dense: dict[int, Run], metric: str, target: float, pace: float) -> Row:
    ends = [run["metric"][-1] for run in runs]
    losses = [_loss(metric, run, dense[run["seed"]]) for run in runs if run["seed"] in dense]
    places = [_first(metric, run, target) for run in runs]
    there = [(run, place) for run, place in zip(runs, places, strict=True) if place is not None]
    return Row(
        arm=arm,
        lr=runs[0]["lr"],
        seeds=len(runs),
        end=mean(ends),
        spread=stdev(ends) if len(ends) > 1 else math.nan,
        apart=mean(losses) if losses else math.nan,
        bound=upper_bound(losses),
        ratio=median(run["ratio"] for run in runs),
        ratio_after_warmup=median(run["ratio_after_warmup"] for run in runs),
        other_share=median(run["other_share"] for run in runs),
        reached=len(there),
        steps=median(run["steps"][place] for run, place in there) if there else math.nan,
        megabytes=median(run["bytes"][place] / 1e6 for run, place in there) if there else math.nan,
        step_ratio=median(run["seconds"][-1] for run in runs) / pace,
    )


def _loss(metric: str, run: Run, dense: Run) -> float:
    own, base = run["metric"][-1], dense["metric"][-1]
    return base - own if metric == "accuracy" else own / base - 1


def _first(metric: str, run: Run, target: float) -> int | None:
    return next((place for place, value in enumerate(run["metric"]) if reaches(metric, value, target)), None)


def upper_bound(values: Sequence[float], confidence: float = 0.95) -> float:
    """Return what the mean stays below with this confidence (one-sided, Student's t); NaN for fewer than two values."""
    if len(values) < 2:
        return math.nan
    return mean(values) + float(student.ppf(confidence, len(values) - 1)) * stdev(values) / math.sqrt(len(values))


def non_inferior(metric: str, row: Row) -> bool | None:
    """Return whether an arm is as good as dense by the margin; None where its bound is not known."""
    return None if math.isnan(row.bound) else row.bound <= MARGINS[metric]
