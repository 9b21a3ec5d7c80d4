"""The pictures of a report. The only file that needs matplotlib, which comes with the extra ``report``."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

from sparse_ring.errors import SparseRingError
from sparse_ring.observe.history import Run
from sparse_ring.observe.records import Record

SIZE_INCHES = (7.0, 3.6)
DOTS_PER_INCH = 160
MARKED = 40
"""Up to so many points each is marked; more make a line by themselves."""
LEGEND_LETTERS = 50
"""What fits into one row of a legend."""

BLUE, ORANGE, GREEN, GREY = "#2b6cb0", "#dd6b20", "#2f855a", "#718096"
COLOURS = (BLUE, ORANGE, GREEN, GREY)


def loss(run: Run) -> bytes | None:
    """Draw every reported number whose name contains ``loss``; None where there is none."""
    names = sorted({name for record in run.records for name in record["reported"] if "loss" in name})
    lines = {name: _points(run.records, name) for name in names}
    lines = {name: points for name, points in lines.items() if points}
    if not lines:
        return None
    figure, axes = _figure("loss")
    for number, (name, points) in enumerate(lines.items()):
        steps, values = zip(*points, strict=True)
        colour = COLOURS[number % len(COLOURS)]
        if len(points) <= MARKED:
            axes.plot(steps, values, colour, marker="o", markersize=3, linewidth=1.4, label=name)
        else:
            # The loss of single batches jumps; the mean shows where it goes.
            width = 2 * (len(points) // MARKED) + 1
            axes.plot(steps, values, colour, linewidth=0.8, alpha=0.35, label=name)
            axes.plot(
                steps, _running_mean(values, width), colour, linewidth=1.8, label=f"{name}, mean of {width} records"
            )
    _finish(axes, run)
    return _png(figure)


def ratios(run: Run) -> bytes:
    """Draw message ratio and wire ratio."""
    figure, axes = _figure("times fewer bytes than dense float32")
    _steps_line(axes, run, lambda record: record["message_ratio"], BLUE, "message ratio")
    _steps_line(axes, run, lambda record: record["wire_ratio"], ORANGE, "wire ratio", dashed=True)
    _logarithmic(axes)
    _finish(axes, run)
    return _png(figure)


def step_time(run: Run) -> bytes:
    """Draw a step's time in four parts: compute, the same with exchange behind it, waiting for the exchange and for ranks."""
    # The first record holds what came before the first step as well.
    records = run.records[1:] or run.records
    compute, hidden, exposed, others = [], [], [], []
    for record in records:
        steps = record["steps"]
        waits = min(record["waiting_seconds"], record["seconds"])
        shown = min(record["exposed_seconds"], waits)
        behind = min(max(0.0, record["exchange_seconds"] - shown), record["seconds"] - waits)
        exposed.append(1e3 * shown / steps)
        others.append(1e3 * (waits - shown) / steps)
        hidden.append(1e3 * behind / steps)
        compute.append(1e3 * (record["seconds"] - waits - behind) / steps)
    figure, axes = _figure("milliseconds a step")
    edges = _edges(records)
    low = [0.0] * len(records)
    parts = (
        (compute, BLUE, "compute"),
        (hidden, GREEN, "compute, exchange hidden"),
        (exposed, ORANGE, "waiting for exchange (exposed)"),
        (others, GREY, "waiting for other ranks"),
    )
    for part, colour, label in parts:
        high = [bottom + value for bottom, value in zip(low, part, strict=True)]
        axes.fill_between(
            edges, [low[0], *low], [high[0], *high], step="pre", color=colour, alpha=0.75, linewidth=0, label=label
        )
        low = high
    # One slow second (a checkpoint, say) must not press all others flat.
    ordered = sorted(low)
    axes.set_ylim(0, min(ordered[-1], 3 * ordered[len(ordered) // 2]) * 1.05 or 1.0)
    _finish(axes, run)
    return _png(figure)


def sent_bytes(run: Run) -> bytes:
    """Draw what a step sends for gradients, and what a dense float32 ring would."""
    figure, axes = _figure("bytes a step and rank")
    _steps_line(axes, run, lambda record: record["ring_bytes"] / record["steps"], GREY, "dense float32 ring")
    _steps_line(axes, run, lambda record: record["gradient_wire_bytes"] / record["steps"], BLUE, "sent")
    _logarithmic(axes, bytes_too=True)
    _finish(axes, run)
    return _png(figure)


def _figure(label: str) -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise SparseRingError("A report needs matplotlib: pip install 'sparse-ring[report]'") from error
    figure = Figure(figsize=SIZE_INCHES, dpi=DOTS_PER_INCH, layout="constrained")
    axes = figure.add_subplot()
    axes.set_ylabel(label)
    axes.set_xlabel("optimizer step")
    axes.grid(color="#e2e8f0", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _finish(axes: Any, run: Run) -> None:
    """Mark the end of the warm-up and put the legend above the picture, where it covers nothing."""
    if run.warm_up_steps:
        axes.axvline(run.warm_up_steps, color=GREY, linewidth=1, linestyle=":", label="end of warm-up")
    axes.ticklabel_format(axis="x", style="plain", useOffset=False)
    axes.set_xlim(0, run.records[-1]["step"])
    labels = axes.get_legend_handles_labels()[1]
    columns = len(labels) if sum(map(len, labels)) <= LEGEND_LETTERS else 2
    axes.legend(ncols=columns, loc="lower left", bbox_to_anchor=(0, 1.01), frameon=False, fontsize=9)


def _steps_line(
    axes: Any, run: Run, value: Callable[[Record], float], colour: str, label: str, *, dashed: bool = False
) -> None:
    """Draw the mean of each record's steps as a level line over them."""
    values = [value(record) for record in run.records]
    style = "--" if dashed else "-"
    axes.plot(
        _edges(run.records),
        [values[0], *values],
        style,
        drawstyle="steps-pre",
        color=colour,
        linewidth=1.6,
        label=label,
    )


def _edges(records: Sequence[Record]) -> list[int]:
    """Return where the records' steps begin and end: one more number than records."""
    return [records[0]["step"] - records[0]["steps"], *(record["step"] for record in records)]


def _logarithmic(axes: Any, *, bytes_too: bool = False) -> None:
    """Use a logarithmic axis of at least one decade, with numbers that people read."""
    from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    if high < 10 * low:
        middle = (low * high) ** 0.5
        axes.set_ylim(middle / 10**0.5, middle * 10**0.5)
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 500 * low else (1.0,)))
    axes.yaxis.set_major_formatter(EngFormatter(unit="B") if bytes_too else FuncFormatter(lambda y, _: f"{y:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _points(records: Sequence[Record], name: str) -> list[tuple[int, float]]:
    """Return (step, value) wherever a number was reported that JSON could hold."""
    return [(record["step"], value) for record in records if (value := record["reported"].get(name)) is not None]


def _running_mean(values: Sequence[float], width: int) -> list[float]:
    """Return the mean of the ``width`` values around each; of fewer at the ends."""
    windows = (values[max(0, i - width // 2) : i + width // 2 + 1] for i in range(len(values)))
    return [sum(window) / len(window) for window in windows]


def _png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()
