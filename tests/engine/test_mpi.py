from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.ranks
@pytest.mark.parametrize("ranks", [2, 3])
def test_engines_agree_under_mpiexec(ranks: int) -> None:
    command = [str(Path(sys.executable).with_name("mpiexec")), "-n", str(ranks), sys.executable, "-W", "error"]
    done = subprocess.run(
        [*command, "-m", "tests.engine.mpi_ranks"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == f"ranks {list(range(ranks))} agree"
