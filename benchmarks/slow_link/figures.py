"""What the benchmark's numbers say: medians of paired ratios with their bounds, tables, plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import lower_bound
from benchmarks.slow_link.kinds import COMPUTE_ONLY, DENSE_OURS, DENSE_PEERS, EXCHANGING_EACH_STEP, OURS


def upper_bound(values: Sequence[float], confidence: float = 0.95) -> float:
    """Return what the median stays below with this confidence."""
    return -lower_bound([-value for value in values], confidence)


def ratios(over: Mapping[str, Any], under: Mapping[str, Any]) -> list[float]:
    """Return the quotients of two arms' step times, round by round."""
    return [a / b for a, b in zip(over["seconds"], under["seconds"], strict=True)]


def rows(arms: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of one configuration's table."""
    header = [
        "arm",
        "step ms",
        "of compute only",
        "95 % bound",
        "exposed ms",
        "CPU ms",
        "kB a step and rank",
        "control kB",
    ]
    compute = arms[COMPUTE_ONLY]
    table = []
    for name, arm in arms.items():
        of_compute = ratios(compute, arm)
        exposed = 1000 * (median(arm["seconds"]) - median(compute["seconds"]))
        control = f"{arm['control_bytes'] / arm['steps'] / 1000:.2f}" if name in OURS else "-"
        table.append(
            [
                name,
                f"{1000 * median(arm['seconds']):.1f}",
                f"{100 * median(of_compute):.1f} %",
                f"> {100 * lower_bound(of_compute):.1f} %",
                f"{exposed:.1f}",
                f"{1000 * arm['busy_seconds'] / arm['steps']:.0f}",
                f"{payload(arm) / arm['steps'] / 1000:.1f}",
                control,
            ]
        )
    return header, table


def payload(arm: Mapping[str, Any]) -> float:
    """Return the bytes that programs on the counted host sent: framing is taken off (see netlab/counters.py)."""
    return float(arm["bytes"] - 66 * arm["packets"])


def fastest(arms: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return the arm among ``names`` with the shortest median step."""
    return min((name for name in names if name in arms), key=lambda name: median(arms[name]["seconds"]), default="")


def verdicts(arms: Mapping[str, Any]) -> list[str]:
    """Return the sentences that answer: how near to compute only, how far from the best dense peer, from any peer."""
    ours = fastest(arms, OURS)
    if not ours:
        return []
    lines = []
    of_compute = ratios(arms[COMPUTE_ONLY], arms[ours])
    lines.append(
        f"{ours}: {100 * median(of_compute):.1f} % of compute only (above {100 * lower_bound(of_compute):.1f} % with "
        f"95 % confidence)"
    )
    for what, names in (
        ("the best dense peer", DENSE_PEERS),
        ("the fastest peer that exchanges each step", [name for name in EXCHANGING_EACH_STEP if name not in OURS]),
    ):
        peer = fastest(arms, names)
        if not peer:
            continue
        over = ratios(arms[peer], arms[ours])
        lines.append(f"{median(over):.2f} times as fast as {what}, {peer} (95 %: above {lower_bound(over):.2f})")
    dense = arms.get(DENSE_OURS[0])
    if dense:
        counted = dense["sent_bytes"] + dense["control_bytes"]
        lines.append(
            f"{DENSE_OURS[0]}: the link's bytes are {payload(dense) / counted:.4f} of those that sparse_ring counted (messages and "
            f"control)"
        )
    return lines


def plot(results: Mapping[str, Any], path: Path) -> None:
    """Draw the step times of all configurations, one panel each, compute only as a line."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(len(results), 1, figsize=(9, 3.1 * len(results)), squeeze=False)
    for axis, (title, entry) in zip(axes[:, 0], results.items(), strict=True):
        arms = entry["arms"]
        names = list(arms)
        times = [1000 * median(arms[name]["seconds"]) for name in names]
        colours = ["#4c78a8" if name in OURS else "#bab0ac" for name in names]
        axis.barh(names, times, color=colours)
        axis.axvline(1000 * median(arms[COMPUTE_ONLY]["seconds"]), color="#e45756", linewidth=1)
        for place, value in enumerate(times):
            axis.text(value, place, f" {value:.0f}", va="center", fontsize=8)
        axis.invert_yaxis()
        axis.set_title(title, loc="left", fontsize=10)
        axis.set_xlabel("ms a step (line: compute only)", fontsize=8)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
