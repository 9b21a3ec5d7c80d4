"""Runs by ``make simulated``; without the simulator's flag, every module here is skipped by name."""

import os

import pytest

if os.environ.get("NUMBA_ENABLE_CUDASIM") != "1":
    pytest.skip("needs a process of its own, with NUMBA_ENABLE_CUDASIM=1: make simulated", allow_module_level=True)
