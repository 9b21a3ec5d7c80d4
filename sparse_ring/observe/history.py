"""Reads what ``records.py`` writes: the runs in a file of metrics."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from sparse_ring.errors import SparseRingError
from sparse_ring.observe.metrics import Metrics
from sparse_ring.observe.records import FORMAT, Record
from sparse_ring.observe.summary import Column


@dataclass
class Run:
    """One run of a job: its header and its records, each about at least one step."""

    header: Record
    records: list[Record] = field(default_factory=list)

    @property
    def warm_up_steps(self) -> int:
        """Steps of the recipe's warm-up; 0 where there was none, or where the run ended in it."""
        warming = [record["step"] for record in self.records if not record["warmed_up"]]
        return max(warming, default=0) if len(warming) < len(self.records) else 0

    def columns(self) -> list[Column]:
        """Return the totals of the run and, where there was a warm-up, of what followed it."""
        columns = [Column("whole run", *_total(self.records))]
        if self.warm_up_steps:
            after = [record for record in self.records if record["warmed_up"]]
            columns.append(Column(f"after {self.warm_up_steps} warm-up steps", *_total(after)))
        return columns


def read_runs(path: str | Path) -> list[Run]:
    """Return the runs in a file of metrics, in order; a torn last line (of a run that was killed) is left out.

    Raises SparseRingError where the file is something else or holds no record.
    """
    runs: list[Run] = []
    lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
        except ValueError:
            # A run that was killed in a write may have been followed by another.
            continue
        if isinstance(record, dict) and record.get("format") == FORMAT:
            runs.append(Run(record))
        elif isinstance(record, dict) and runs and "step" in record:
            runs[-1].records.append(record)
        else:
            raise SparseRingError(f"{path}, line {number}: no record of sparse_ring's metrics (format {FORMAT}).")
    runs = [run for run in runs if run.records]
    if not runs:
        raise SparseRingError(f"{path} holds no record. Was SPARSE_RING_METRICS set, and was a step taken?")
    return runs


def joined(runs: list[Run]) -> Run:
    """Return runs that followed each other as one, with their steps counted on."""
    whole = Run(runs[0].header)
    for run in runs:
        done = whole.records[-1]["step"] if whole.records else 0
        whole.records += [{**record, "step": done + record["step"]} for record in run.records]
    return whole


def _total(records: list[Record]) -> tuple[Metrics, float]:
    """Return the sums of counts and seconds."""
    totals: dict[str, Any] = {}
    for entry in fields(Metrics):
        values = [record[entry.name] for record in records if entry.name in record]
        totals[entry.name] = sum(values)
    return Metrics(**totals), sum(record["seconds"] for record in records)
