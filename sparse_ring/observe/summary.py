"""The table at the end of a run: how fast, how many bytes, how well hidden."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

from sparse_ring.observe.metrics import Metrics

WIDTH = 100


@dataclass(frozen=True)
class Column:
    """One part of a run: what was counted in ``seconds``, and what to call it."""

    title: str
    metrics: Metrics
    seconds: float


def summary_table(columns: Sequence[Column], size: int) -> str:
    """Return totals of one rank as text of at most 100 columns, without colour or a last newline.

    The first column is the whole run of ``size`` ranks; another may be the part after warm-up. Rows that say nothing
    (coded elements where nothing was sparse, non-finite frames where there were none) are left out.
    """
    # Imported here, as only the rank that shows a table needs it.
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.ROUNDED, show_header=len(columns) > 1)
    table.add_column(no_wrap=True)
    for column in columns:
        table.add_column(column.title, no_wrap=True)
    cells = [rows(column) for column in columns]
    for name in cells[0]:
        if any(each[name] for each in cells):
            table.add_row(name, *(each[name] for each in cells))
    console = Console(file=io.StringIO(), width=WIDTH, color_system=None, force_terminal=False, highlight=False)
    with console.capture() as capture:
        console.print(table)
    return "\n".join([title(columns[0], size), *(line.rstrip() for line in capture.get().splitlines())])


def short(ratio: float) -> str:
    """Return a ratio with three digits, or all of them before the point."""
    return f"{ratio:.3g}" if ratio < 999.5 else f"{ratio:.0f}"


def title(column: Column, size: int) -> str:
    """Return the line above the table."""
    ranks = "1 rank" if size == 1 else f"{size} ranks"
    return f"sparse_ring: {column.metrics.steps} steps on {ranks} in {column.seconds:.1f} s; counted on rank 0"


def rows(column: Column) -> dict[str, str]:
    """Return the table's cells of a column by the names of their rows; empty where one says nothing."""
    metrics, seconds = column.metrics, column.seconds
    steps = max(1, metrics.steps)
    exposed = metrics.exposed_seconds
    hidden, waiting = metrics.exchange_seconds - exposed, max(0.0, metrics.waiting_seconds - exposed)
    kept, sparse, elements = metrics.kept_elements, metrics.sparse_elements, metrics.dense_bytes / 4
    index, value = (8 * part / max(1, kept) for part in (metrics.index_bytes, metrics.value_bytes))
    return {
        "speed": f"{metrics.steps / seconds if seconds > 0 else 0.0:.1f} steps/s",
        "gradients sent": _bytes(metrics.gradient_wire_bytes),
        "a dense fp32 ring sends": _bytes(metrics.ring_bytes),
        "message ratio": short(metrics.message_ratio),
        "wire ratio": short(metrics.wire_ratio),
        "elements in sparse frames": f"{100 * sparse / elements:.2f} %" if sparse else "",
        "kept of those": f"{100 * kept / sparse:.3g} %" if sparse else "",
        "bits per kept element": f"{index:.2f} index + {value:.2f} value" if sparse else "",
        "exchange, hidden": f"{hidden / steps * 1e3:.1f} ms/step",
        "exchange, exposed": f"{exposed / steps * 1e3:.1f} ms/step",
        "waiting for other ranks": f"{waiting / steps * 1e3:.1f} ms/step",
        "non-finite gradients": f"{metrics.nonfinite_frames} frames sent empty" if metrics.nonfinite_frames else "",
    }


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{short(count)} TB"
