"""A rank that fails to join ends the job, under both launchers, instead of letting the others wait for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
SCRIPT = Path(__file__).parent / "ranks" / "failing_init.py"
SAID = {
    "list": "which leaves out rank 1, the caller",
    "setting": "SPARSE_RING_PROGRESS is 'perhaps', but must be one of auto, 0, 1",
    "kernels": "SPARSE_RING_KERNELS is 'avx9', but must be one of",
}


@pytest.mark.faults
@pytest.mark.ranks
@pytest.mark.parametrize("launcher", [["sparse-ring-run", "-np"], ["mpirun", "-n"]], ids=["sparse-ring-run", "mpirun"])
@pytest.mark.parametrize("mode", list(SAID))
def test_the_job_ends_and_says_why(launcher, mode):
    command = [BIN / launcher[0], launcher[1], "2", sys.executable, str(SCRIPT), mode]
    # A stall would be the other way to end; it must not be needed.
    environment = {**os.environ, "SPARSE_RING_STALL_SHUTDOWN_TIME_SECONDS": "100"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode != 0
    assert SAID[mode] in done.stderr
    assert "joined" not in done.stdout
    if launcher[0] == "sparse-ring-run":
        assert "sparse-ring-run: rank 1 ended with exit code 1" in done.stderr
