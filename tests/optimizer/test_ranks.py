"""The mathematics, bit-identical replicas and overlap once more, on real ranks."""

from pathlib import Path

import pytest

from tests.helpers import run_mpi

SCRIPT = Path(__file__).parent.parent / "ranks" / "training.py"


@pytest.mark.ranks
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_training_under_mpiexec(size):
    assert run_mpi(size, SCRIPT).count("training: ok") == size
