"""A run's metrics as pictures and one page: ``python -m sparse_ring.observe.report METRICS.jsonl [--out DIR]``.

The page is one file that needs nothing beside it; the pictures lie there as PNG files as well.
"""

from __future__ import annotations

import argparse
import base64
import html
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from sparse_ring.errors import SparseRingError
from sparse_ring.observe import plots
from sparse_ring.observe.history import Run, joined, read_runs
from sparse_ring.observe.summary import Column, rows, title

PAGE = "index.html"
NO_LOSS = "No loss was reported. Call hvd.report(loss=loss) in the training loop to see it here."

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1a202c; max-width: 1180px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: 0; }
h2 { font-size: 1rem; margin: 0 0 .3rem; }
p.about { color: #4a5568; margin: .2rem 0 1.5rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(480px, 1fr)); gap: 1.2rem; }
figure { margin: 0; border: 1px solid #e2e8f0; border-radius: 8px; padding: .8rem 1rem; }
figure img { width: 100%; }
figcaption { color: #4a5568; font-size: .85rem; }
table { border-collapse: collapse; margin: 1.5rem 0; }
td, th { padding: .3rem 1.2rem .3rem 0; border-bottom: 1px solid #e2e8f0; text-align: right; }
td:first-child, th:first-child { text-align: left; }
"""


def write_report(path: str | Path, out: str | Path, *, all_runs: bool = False) -> Path:
    """Write pictures and page of a file of metrics into the folder ``out``; returns the page.

    all_runs
        Show all runs in the file as one, as after a resume; otherwise the last.

    Raises SparseRingError where the file holds no metrics or matplotlib is not installed; OSError where ``out`` cannot be
    written.
    """
    runs = read_runs(path)
    run = joined(runs) if all_runs else runs[-1]
    figures = _figures(run)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    for name, _, _, picture in figures:
        if picture is not None:
            (folder / f"{name}.png").write_bytes(picture)
    page = folder / PAGE
    page.write_text(_page(run, len(runs) - 1 if not all_runs else 0, figures), encoding="utf-8")
    return page


def _figures(run: Run) -> list[tuple[str, str, str, bytes | None]]:
    """Return (file name, heading, caption, picture) of each figure."""
    return [
        ("loss", "Loss", "As reported on rank 0, last value before each record.", plots.loss(run)),
        (
            "step_time",
            "Step time",
            "Mean of each record's steps. What is waited for makes training slower. Peaks above three times the median are cut.",
            plots.step_time(run),
        ),
        (
            "ratio",
            "Compression ratio",
            "Message ratio: dense bytes / bytes of the messages a rank makes. Wire ratio: a dense ring's bytes / bytes sent.",
            plots.ratios(run),
        ),
        (
            "bytes",
            "Bytes sent",
            "For gradients, mean of each record's steps, to all ranks.",
            plots.sent_bytes(run),
        ),
    ]


def _page(run: Run, earlier_runs: int, figures: Sequence[tuple[str, str, str, bytes | None]]) -> str:
    columns = run.columns()
    started = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(run.header["started"]))
    about = f"Started {started}, rank {run.header['rank']} of {run.header['size']}."
    if earlier_runs:
        about += f" The file holds {earlier_runs} earlier run{'s' * (earlier_runs > 1)}, not shown."
    heading = title(columns[0], run.header["size"]).replace("rank 0", f"rank {run.header['rank']}")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(heading)}</title>'
        f"<style>{STYLE}</style></head><body>\n<h1>{html.escape(heading)}</h1>\n"
        f'<p class="about">{html.escape(about)}</p>\n'
        f'<div class="figures">{"".join(_figure(*figure) for figure in figures)}</div>\n{_table(columns)}\n'
        f"</body></html>\n"
    )


def _figure(name: str, heading: str, caption: str, picture: bytes | None) -> str:
    if picture is None:
        content = f"<figcaption>{html.escape(NO_LOSS)}</figcaption>"
    else:
        data = base64.b64encode(picture).decode()
        content = (
            f'<img alt="{html.escape(heading)}" src="data:image/png;base64,{data}">'
            f"<figcaption>{html.escape(caption)}</figcaption>"
        )
    return f'\n<figure id="{name}"><h2>{html.escape(heading)}</h2>{content}</figure>'


def _table(columns: Sequence[Column]) -> str:
    cells = [rows(column) for column in columns]
    lines = [["", *(column.title for column in columns)]]
    lines += [[name, *(each[name] for each in cells)] for name in cells[0] if any(each[name] for each in cells)]
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in line)}</tr>\n" for line in lines)
    return f"<table>\n{body}</table>"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m sparse_ring.observe.report", description="Draw a run's metrics as pictures and one HTML page."
    )
    parser.add_argument("metrics", metavar="METRICS.jsonl", help="what SPARSE_RING_METRICS named")
    parser.add_argument("--out", metavar="DIR", help="folder for page and pictures (default: the file's own)")
    parser.add_argument("--all-runs", action="store_true", help="show all runs in the file as one, as after a resume")
    options = parser.parse_args(arguments)
    try:
        page = write_report(options.metrics, options.out or Path(options.metrics).parent, all_runs=options.all_runs)
    except (SparseRingError, OSError) as error:
        print(f"No report: {error}", file=sys.stderr)
        return 1
    print(f"Report: {page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
