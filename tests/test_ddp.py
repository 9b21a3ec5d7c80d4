"""DDP's communication hook against DistributedOptimizer (``ddp.py``, ``optimizer/bucket_reducer.py``, ``hook_reducer.py``)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers import run_mpi, run_torch
from tests.ranks.ddp import CHECKS, RECIPES

SCRIPT = Path(__file__).parent / "ranks" / "ddp.py"

pytestmark = pytest.mark.ranks


@pytest.mark.parametrize(("start", "size"), [(run_mpi, 1), (run_mpi, 2), (run_mpi, 3), (run_torch, 2), (run_torch, 3)])
def test_ddp(start: Callable[..., str], size: int) -> None:
    output = start(size, SCRIPT)
    for check in CHECKS:
        assert output.count(f"{check.__name__}: ok") == size


def test_the_optimizer_and_the_hook_give_the_same_parameters_over_mpi_and_gloo() -> None:
    hashes = {
        (start.__name__, way): sorted(start(3, SCRIPT, way).splitlines())
        for start in (run_mpi, run_torch)
        for way in ("optimizer", "hook")
    }
    expected = hashes["run_mpi", "optimizer"]
    assert len(expected) == 3 * len(RECIPES)
    assert len({line.split()[-1] for line in expected}) == len(RECIPES)
    for (start, way), printed in hashes.items():
        assert printed == expected, (start, way)


def test_lightning_trains_resumes_and_registers_as_documented(tmp_path: Path) -> None:
    pytest.importorskip("lightning", reason="lightning is not installed (pip install lightning)")
    # Lightning warns of much, of torch's pytree for one.
    output = run_torch(2, SCRIPT.with_name("ddp_lightning.py"), str(tmp_path), settings={"PYTHONWARNINGS": "default"})
    assert output.count("lightning: ok") == 2
