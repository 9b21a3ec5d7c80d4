"""The page of docs/results/convergence.md and its plots, from the lines of JSON beside it.

python -m benchmarks.convergence.page
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from benchmarks.convergence.__main__ import FOLDER
from benchmarks.convergence.arms import PAIRED_SEEDS
from benchmarks.convergence.figures import MARGINS, SLACK, Row, load, non_inferior, rows
from benchmarks.convergence.tasks import TASKS
from benchmarks.measure import markdown_table

PAGE = Path("docs/results/convergence.md")
# Few enough to be told apart in a plot.
PLOTTED = [
    "dense",
    "bf16",
    "8 bits",
    "terngrad",
    "powersgd rank 4",
    "topk 0.1 %",
    "dgc 0.1 %",
    "gradsa 1 %",
    "gradsa 0.1 %",
]

INTRODUCTION = """\
# Does it train as well, in how many bytes, in how many steps

`python -m benchmarks.convergence` (resumable, hours), then `python -m benchmarks.convergence.page`. Two ranks on one machine, one
thread each, the same training loop for all arms. Each arm's learning rate is the best of three on a seed of its own; then all are
trained with the same seeds, which draw weights, order and (digits, cancer) the split. OneCycle schedule; SGD with momentum 0.9,
AdamW for the GPT.

* *Against dense*: mean of the differences seed by seed, worse is positive; *bound*: what it stays below with 95 % confidence
  (one-sided, Student's t). *As good*: the bound is at most {accuracy:.1f} points of accuracy, or {loss:.0f} % of the loss.
* *Ratio*: dense float32 bytes over the bytes of the messages that a rank makes, all of them counted; after the warm-up, and of the
  whole run. *Other*: share of the bytes after the warm-up that is neither indices nor values of compressed parameters.
* *Steps* and *MB to target*: medians up to the first evaluation at the target, which is dense's mean end less
  {slack_accuracy:.0f} point of accuracy, or plus {slack_loss:.0f} % of the loss; of the seeds that reached it (how many is told
  where not all did). *Step*: seconds a step over dense's, without a slow link; the machine had other work during some runs, so
  only large differences mean something.

Not all runs are done yet: an arm with fewer seeds than its neighbours, or none, waits for its turn.
"""


def main() -> None:
    parts = [
        INTRODUCTION.format(
            accuracy=100 * MARGINS["accuracy"],
            loss=100 * MARGINS["loss"],
            slack_accuracy=100 * SLACK["accuracy"],
            slack_loss=100 * SLACK["loss"],
        )
    ]
    for task in TASKS:
        path = FOLDER / f"{task}.jsonl"
        if path.exists():
            parts.append(section(task, path))
    PAGE.write_text("\n".join(parts))


def section(task: str, path: Path) -> str:
    """Return a task's table and verdict, and draw its plot."""
    runs, kind = load(path), TASKS[task]
    found = rows(task, runs)
    plot(task, found, FOLDER / f"{task}.png")
    what = " ".join((kind.__doc__ or "").split())
    return (
        f"## {task}\n\n{what}\n{kind.steps} steps of {kind.batch} examples, warm-up over {kind.warmup_steps} steps.\n\n"
        f"![{task}](convergence/{task}.png)\n\n{markdown_table(*cells(kind.metric, found))}\n\n{verdict(kind.metric, found)}\n"
    )


def cells(metric: str, found: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Return header and lines of a task's table."""
    header = [
        "arm",
        "rate",
        "seeds",
        metric,
        "against dense",
        "bound",
        "as good",
        "ratio",
        "whole run",
        "other",
        "steps",
        "MB",
        "step",
    ]
    return header, [_cells(metric, row) for row in found]


def _cells(metric: str, row: Row) -> list[str]:
    good = non_inferior(metric, row)
    points = "points" if metric == "accuracy" else "%"
    reached = "" if row.reached == row.seeds else f" ({row.reached} of {row.seeds})"
    return [
        row.arm,
        f"{row.lr:g}",
        str(row.seeds),
        f"{100 * row.end:.2f} %" if metric == "accuracy" else f"{row.end:.4f}",
        f"{100 * row.apart:+.2f} {points}",
        "-" if math.isnan(row.bound) or row.arm == "dense" else f"{100 * row.bound:+.2f}",
        "-" if good is None or row.arm == "dense" else "yes" if good else "no",
        f"{row.ratio_after_warmup:.0f}" if row.ratio_after_warmup >= 10 else f"{row.ratio_after_warmup:.1f}",
        f"{row.ratio:.0f}" if row.ratio >= 10 else f"{row.ratio:.1f}",
        "-" if math.isnan(row.other_share) else f"{100 * row.other_share:.0f} %",
        "never" if math.isnan(row.steps) else f"{row.steps:.0f}{reached}",
        "-" if math.isnan(row.megabytes) else f"{row.megabytes:.2f}",
        f"{row.step_ratio:.2f}",
    ]


def verdict(metric: str, found: Sequence[Row]) -> str:
    """Return which arm is as good as dense with the fewest bytes, and how few."""
    good = [row for row in found if row.arm != "dense" and non_inferior(metric, row)]
    if not good:
        return "No arm is shown to be as good as dense with these seeds."
    best = max(good, key=lambda row: row.ratio_after_warmup)
    return (
        f"As good as dense with the highest ratio: **{best.arm}**, {best.ratio_after_warmup:.0f} after the warm-up, "
        f"{best.ratio:.0f} over the whole run."
    )


def plot(task: str, found: Sequence[Row], path: Path) -> None:
    """Draw the mean curves of some arms over steps and over bytes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    runs = [run for run in load(FOLDER / f"{task}.jsonl") if run["seed"] < PAIRED_SEEDS]
    for row in found:
        own = [run for run in runs if run["arm"] == row.arm]
        if row.arm not in PLOTTED or not own:
            continue
        curve = [mean(values) for values in zip(*(run["metric"] for run in own), strict=True)]
        sent = [mean(values) / 1e6 for values in zip(*(run["bytes"] for run in own), strict=True)]
        left.plot(own[0]["steps"], curve, label=row.arm)
        right.plot(sent, curve, label=row.arm)
    left.set(xlabel="steps", ylabel=TASKS[task].metric)
    right.set(xlabel="MB that a rank made", xscale="log")
    ends = [row.end for row in found if row.arm in PLOTTED]
    if TASKS[task].metric == "accuracy":
        left.set_ylim(max(0.0, min(ends) - 0.1), 1.0)
    else:
        left.set_ylim(0.97 * min(ends), 1.6 * max(ends))
    right.legend(fontsize=8)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
