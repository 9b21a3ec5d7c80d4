"""The transport's contract over MPI: whole messages, and messages cut into pieces of 1,000 bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparse_ring.errors import ConfigError
from sparse_ring.transport.mpi import MpiTransport
from tests.contracts.transport import CASES

ROOT = Path(__file__).parents[2]


def mpiexec(ranks: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("mpiexec")), "-n", str(ranks), sys.executable, *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=300)


@pytest.mark.ranks
@pytest.mark.parametrize("ranks", [2, 3])
def test_contract_under_mpiexec(ranks: int) -> None:
    done = mpiexec(ranks, "-W", "error", "-m", "tests.transport.mpi_ranks")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == f"{ranks} ranks passed {ranks * len(CASES)} cases"


@pytest.mark.ranks
def test_abort_ends_all_ranks_with_its_code() -> None:
    program = (
        "import time\nfrom sparse_ring.transport.mpi import MpiTransport\n"
        "transport = MpiTransport()\ntransport.open()\n"
        "if transport.rank == 0: transport.abort(7)\ntime.sleep(120)\n"
    )
    assert mpiexec(2, "-c", program).returncode == 7


def test_a_piece_must_fit_a_c_int() -> None:
    with pytest.raises(ConfigError, match=r"piece_bytes is 2147483648"):
        MpiTransport(piece_bytes=2**31)
