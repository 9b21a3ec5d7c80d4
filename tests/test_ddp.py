"""DDP's communication hook against DistributedOptimizer (``ddp.py``, ``optimizer/bucket_reducer.py``, ``hook_reducer.py``)."""

from pathlib import Path

import pytest

from tests.helpers import run_mpi
from tests.ranks.ddp import CHECKS

SCRIPT = Path(__file__).parent / "ranks" / "ddp.py"

pytestmark = pytest.mark.ranks


@pytest.mark.parametrize("size", [1, 2, 3])
def test_ddp_over_mpi(size: int) -> None:
    output = run_mpi(size, SCRIPT)
    for check in CHECKS:
        assert output.count(f"{check.__name__}: ok") == size
