"""One trace of the traces of all ranks: ``python -m sparse_ring.observe.merge FILE`` joins FILE.rank0, FILE.rank1, …

A job does this by itself when it ends; the command is for one that was killed, and for ranks on several hosts, whose files
must be copied together first.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparse_ring.observe.timeline import END, ORIGIN
from sparse_ring.observe.trace_file import event_lines


@dataclass(frozen=True)
class Merged:
    """What came of it: ranks in the file, those of them whose recording has no end, those that were not found."""

    ranks: tuple[int, ...]
    unfinished: tuple[int, ...]
    missing: tuple[int, ...]


def part_of(path: str, rank: int) -> str:
    """Return the name of a rank's own file."""
    return f"{path}.rank{rank}"


def merge(path: str, size: int, run: int) -> Merged:
    """Join the files of ``size`` ranks that belong to recording ``run`` into ``path``; delete those that are finished.

    Raises OSError where ``path`` cannot be written; then all files stay as they are.
    """
    parts = {rank: part_of(path, rank) for rank in range(size)}
    found = {rank: part for rank, part in parts.items() if os.path.exists(part) and _run_of(part) == run}
    finished = _join(path, found)
    for rank in finished:
        os.remove(found[rank])
    return Merged(
        ranks=tuple(found),
        unfinished=tuple(rank for rank in found if rank not in finished),
        missing=tuple(rank for rank in parts if rank not in found),
    )


def _join(path: str, parts: dict[int, str]) -> set[int]:
    """Write the events of ``parts`` to ``path`` at once or not at all; returns the ranks whose recording has an end."""
    finished = set()
    unfinished_path = f"{path}.merging"
    try:
        with open(unfinished_path, "w", encoding="utf-8") as file:
            separator = "[\n"
            for rank, part in parts.items():
                line = ""
                for line in event_lines(part):
                    file.write(separator + line)
                    separator = ",\n"
                if line and json.loads(line)["name"] == END:
                    finished.add(rank)
            file.write("[\n]\n" if separator == "[\n" else "\n]\n")
        os.replace(unfinished_path, path)
    except OSError:
        Path(unfinished_path).unlink(missing_ok=True)
        raise
    return finished


def _run_of(part: str) -> int | None:
    """Return the number of the recording that a file belongs to."""
    first: dict[str, Any] = next((json.loads(line) for line in event_lines(part)), {})
    run = first.get("args", {}).get("run") if first.get("name") == ORIGIN else None
    return run if isinstance(run, int) else None


def _ranks_beside(path: str) -> list[int]:
    pattern = re.compile(re.escape(Path(path).name) + r"\.rank(\d+)")
    matches = (pattern.fullmatch(entry.name) for entry in Path(path).absolute().parent.iterdir())
    return sorted(int(match[1]) for match in matches if match)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m sparse_ring.observe.merge", description=__doc__)
    parser.add_argument("file", metavar="FILE", help="what SPARSE_RING_TIMELINE named; written anew")
    path = parser.parse_args(arguments).file
    runs = {rank: _run_of(part_of(path, rank)) for rank in _ranks_beside(path)}
    known = [run for run in runs.values() if run is not None]
    if not known:
        print(f"No timeline of a rank lies beside {path} as {Path(path).name}.rank0, …", file=sys.stderr)
        return 1
    run = runs.get(0) or known[0]
    done = merge(path, max(runs) + 1, run)
    print(f"{path}: ranks {_listed(done.ranks)}")
    if done.missing:
        print(f"without ranks {_listed(done.missing)}: no file, or one of another recording", file=sys.stderr)
    return 0


def _listed(ranks: Iterable[int]) -> str:
    return ", ".join(map(str, ranks))


if __name__ == "__main__":
    sys.exit(main())
