"""What a job must survive, on real ranks under mpiexec."""

from pathlib import Path

import pytest

from tests.helpers import run_mpi

SCRIPT = Path(__file__).parent.parent / "ranks" / "faults.py"

pytestmark = [pytest.mark.ranks, pytest.mark.faults]


@pytest.mark.parametrize(
    ("mode", "size"),
    [("stopped", 3), ("workers", 2), ("cycles", 2), ("shapes", 2), ("tiny", 2), ("large", 2), ("crowded", 5)],
)
def test_job_survives(mode, size):
    assert run_mpi(size, SCRIPT, mode, timeout=400).count(f"{mode}: ok") == size
