"""What a job must survive, on real ranks under mpiexec, and as torchrun starts them."""

from pathlib import Path

import pytest

from tests.helpers import run_mpi, run_torch

SCRIPT = Path(__file__).parent.parent / "ranks" / "faults.py"

pytestmark = [pytest.mark.ranks, pytest.mark.faults]


@pytest.mark.parametrize(
    ("mode", "size"),
    [("stopped", 3), ("workers", 2), ("cycles", 2), ("shapes", 2), ("tiny", 2), ("large", 2), ("crowded", 5)],
)
def test_job_survives(mode, size):
    assert run_mpi(size, SCRIPT, mode, timeout=400).count(f"{mode}: ok") == size


@pytest.mark.parametrize(("mode", "size"), [("stopped", 3), ("workers", 2), ("cycles", 2), ("tiny", 2), ("crowded", 5)])
def test_job_without_mpi_survives(mode, size):
    assert run_torch(size, SCRIPT, mode, timeout=400, settings={"CYCLES": "50"}).count(f"{mode}: ok") == size
