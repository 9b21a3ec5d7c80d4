"""Writes the page of the results: docs/results/slow-link.md from the JSON of the benchmarks.

python -m benchmarks.slow_link.page docs/results/slow-link.json > docs/results/slow-link.md
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from benchmarks.measure import markdown_table
from benchmarks.slow_link.figures import rows, verdicts

INTRODUCTION = """\
# Slow links, beside what people use today

`python -m benchmarks.slow_link --hosts 4 2 --batch 96 --json docs/results/slow-link.json --plot docs/results/slow-link.png`
(needs root: it makes the hosts), then `python -m benchmarks.slow_link.page docs/results/slow-link.json`. On {processor},
{cores} cores, which all hosts share; one rank a host, one thread a rank; the hosts and links are those of [the network
lab](../network-lab.md).

All arms train the same convolutional network (1.92 million parameters) on the same images in one job, in turn, forwards and
backwards; a round gives each arm {steps} steps between two barriers, and the slowest rank's time counts. *Of compute only* is
the median of the rounds' ratios, the bound what it exceeds with 95 % confidence (sign test). *Compute only* is forward,
backward and the optimizer's step on all ranks at once; *compute and meet* adds a barrier after each step, which is what being
synchronous costs here, whoever exchanges whatever. *CPU ms* are those of all ranks together. Bytes are what the first host
sent, framing taken off. sparse_ring's bytes travel over MPI, the peers' over gloo. PowerSGD has one bucket (torch's hook aborts
on gloo with several); its bfloat16 hook, which DDP refuses outside of CUDA by name, is called through a function of another
name. Horovod is not installed here. Learning rates do not change what a step costs; for how soon an accuracy is reached see
below.

![Step times](slow-link.png)
"""

SPENT = """\
## What the missing percent are spent on

The cores. With four ranks on two cores every millisecond that a rank's engine works is taken from somebody's training: of the
difference to compute only at 100 Mbit/s and density 0.1 %, about a third is meeting (the barrier arm), and the rest is about 6
ms of processor time a rank and step, as `python -m benchmarks.slow_link.stages` counts it (batch 72, one run):

| part | ms a rank and step |
|---|---:|
| compress (`prepare`): finite check, accumulate and select, encode | 1.7 |
| control frames with what rides (`_compose`, `exchange`): writing, sending, testing, sleeping | 1.7 |
| decode and aggregate 4 ranks' frames, zero the rest (`_run`) | 1.3 |
| waiting for the next turn, listening for other ranks' rounds (`_await_turn` without `prepare`) | 1.2 |

On the way there were, before and after: exact selection each step for most steps (the predicted threshold failed in 40 to 93 %
of them), now 0 to 4 %; a ring of messages after an exchange of lengths after a round for each of four or five buckets a step,
now two to three rounds a step and no exchange after them; yields while waiting, each of which costs a turn of some milliseconds
on a busy core; sleeps that Linux prolonged by 50 us. What is left to do: rounds that late ranks begin one after another (2.6 to
2.8 a step were seen, one would do), Python in the engine (about 0.08 ms a parameter and step), and hosts with a core for each
engine, which were not measured.
"""


def accuracy(figures: dict[str, Any]) -> str:
    """Return the section on how soon an accuracy is reached."""
    lines = []
    for arm, rate in figures["rates"].items():
        own = [run for run in figures["timed"] if run["arm"] == arm]
        if not own:
            continue
        reached = [run["seconds"] for run in own if run["steps"]]
        middle = f"{median(reached):.1f}" if len(reached) == len(own) else "not by all"
        lines.append([arm, str(rate), ", ".join(str(run["steps"] or "never") for run in own), middle])
    seconds = {
        arm: [r["seconds"] for r in figures["timed"] if r["arm"] == arm and r["steps"]] for arm in figures["rates"]
    }
    most = max(len(values) for values in seconds.values())
    medians = {arm: median(values) for arm, values in seconds.items() if len(values) == most}
    ours, peers = (
        {a: m for a, m in medians.items() if a.startswith("sparse_ring gradsa") == own} for own in (True, False)
    )
    best = min(ours, key=ours.__getitem__)
    sooner = "\n".join(f"* {best}: {m / ours[best]:.2f} times as soon as {arm}" for arm, m in peers.items())
    return (
        "## Time to 97 % test accuracy, 4 hosts at 100 Mbit/s\n\n`python -m benchmarks.slow_link.accuracy --json "
        "docs/results/slow-link.json`, 32 images a rank and step.\nEach arm's learning rate is the best of three, on a seed "
        "of its own, without a link; then the clock runs from the first step on.\nSteps by seed; two evaluations in a row "
        "must reach it. While the last seed ran, the machine had other work, for all arms alike.\n\n"
        + markdown_table(["arm", "learning rate", "steps", "median seconds"], lines)
        + f"\n\n{sooner}\n\n{final(figures['final'])}"
    )


def final(runs: list[dict[str, Any]]) -> str:
    """Return the paragraph on the accuracies after as many steps, seed by seed against the dense arm."""
    by_arm: dict[str, list[float]] = {}
    for run in runs:
        by_arm.setdefault(run["arm"], []).append(100 * run["accuracies"][-1])
    dense, *others = by_arm
    seeds, lines = len(by_arm[dense]), []
    for arm in others:
        apart = [own - base for own, base in zip(by_arm[arm], by_arm[dense], strict=True)]
        # Student's t for ten seeds, two-sided.
        reach = 2.262 * stdev(apart) / seeds**0.5
        low, high = mean(apart) - reach, mean(apart) + reach
        lines.append(f"* {arm}: {mean(by_arm[arm]):.2f} %, {mean(apart):+.2f} points (95 %: {low:+.2f} to {high:+.2f})")
    steps = len(runs[0]["accuracies"]) * 5
    return (
        f"After {steps} steps with the same learning rates and schedules, {seeds} paired seeds, {dense} has "
        f"{mean(by_arm[dense]):.2f} % of\nthe test images right, and\n\n" + "\n".join(lines) + "\n"
    )


def main() -> None:
    record = json.loads(Path(sys.argv[1]).read_text())
    machine = record["machine"]
    first = next(iter(record["slow_link"].values()))
    steps = next(iter(first["arms"].values()))
    each = steps["steps"] // len(steps["seconds"])
    print(INTRODUCTION.format(processor=machine["processor"], cores=machine["cores"], steps=each))
    for title, entry in record["slow_link"].items():
        print(f"## {title}\n\n{markdown_table(*rows(entry['arms']))}\n")
        print("\n".join(f"* {line}" for line in verdicts(entry["arms"])) + "\n")
    if "accuracy" in record:
        print(accuracy(record["accuracy"]))
    print(SPENT, end="")


if __name__ == "__main__":
    main()
