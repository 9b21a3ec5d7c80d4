"""The mathematics, bit-identical replicas and overlap once more, on real ranks."""

from pathlib import Path

import pytest

from tests.helpers import run_mpi

SCRIPTS = Path(__file__).parent.parent / "ranks"


@pytest.mark.ranks
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_training_under_mpiexec(size):
    assert run_mpi(size, SCRIPTS / "training.py").count("training: ok") == size


@pytest.mark.ranks
def test_compiled_models_train_and_compiled_autograd_is_refused():
    assert run_mpi(2, SCRIPTS / "compiled.py").count("compiled: ok") == 2
