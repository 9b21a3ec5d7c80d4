from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.helpers import run_mpi, run_ranks
from tests.ops.suite import CHECKS

SCRIPT = Path(__file__).parent.parent / "ranks" / "ops_suite.py"


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_on_threads(check: Any, size: int) -> None:
    run_ranks(size, check)


@pytest.mark.ranks
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_under_mpiexec(size: int) -> None:
    output = run_mpi(size, SCRIPT)
    for rank in range(size):
        assert f"rank {rank} of {size}: {len(CHECKS)} checks, all cycles" in output
