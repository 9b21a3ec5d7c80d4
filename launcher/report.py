"""``--report DIR``: where the ranks put their metrics, and the page that is made of them after the job."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

from sparse_ring.errors import SparseRingError

METRICS = "metrics.jsonl"


def report_environment(folder: str) -> dict[str, str]:
    """Make the folder and return the variables with which rank 0 records its metrics there.

    Raises SparseRingError where that is not possible: before the job, not hours later.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise SparseRingError("--report needs matplotlib: pip install 'sparse-ring[report]'")
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SparseRingError(f"--report {folder}: {error.strerror}; give a folder that can be written") from error
    return {"SPARSE_RING_METRICS": str(Path(folder).absolute() / METRICS)}


def write_report(folder: str, environment: dict[str, str]) -> str:
    """Write page and pictures of the last run into the folder; returns a line that says where, or why not.

    In a process of its own, since the launcher loads no plotting.
    """
    metrics = Path(folder) / METRICS
    if not metrics.exists():
        return f"no report: no rank has written {metrics}; does the command call hvd.init()?"
    done = subprocess.run(
        [sys.executable, "-m", "sparse_ring.observe.report", str(metrics)],
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    said = (done.stdout + done.stderr).strip().splitlines()
    return said[-1] if said else f"no report: its process ended with exit code {done.returncode}"
