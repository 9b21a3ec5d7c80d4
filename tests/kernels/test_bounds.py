"""Native kernels read nothing behind their inputs: in a process of its own, since a mistake would end it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.contracts.kernel_cases import NATIVE


@pytest.mark.skipif(sys.platform != "linux", reason="protects a page with mprotect")
@pytest.mark.parametrize("name", NATIVE)
def test_nothing_is_read_behind_the_payload(name: str) -> None:
    command = [sys.executable, "-m", "tests.kernels.guard_page", name]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, f"exit {result.returncode}: {result.stderr}"
    assert int(result.stdout.split()[1]) >= 16
