"""The CUDA twin in numba's simulator, in a process of its own: numba reads the flag when it is first imported."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"


@pytest.fixture(scope="session", autouse=True)
def _frequent_switches() -> Iterator[None]:
    """The simulator polls its threads in a busy loop; it is to give way at once to those it waits for."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)
