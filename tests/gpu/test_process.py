"""Whether this process simulates; if not, nothing else here is collected."""

from __future__ import annotations

import pytest

from tests.contracts.kernel_cases import SIMULATED


def test_this_process_simulates() -> None:
    if not SIMULATED:
        pytest.skip("tests/gpu needs a process of its own, with NUMBA_ENABLE_CUDASIM=1: make simulated")
    from sparse_ring.kernels.cuda import warp

    assert warp.SIMULATED
    assert warp.WARPS > 1
