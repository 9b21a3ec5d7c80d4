"""The CUDA twin in numba's simulator, in a process of its own: numba reads the flag when it is first imported."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gpu.turns import take_turns


@pytest.fixture(scope="session", autouse=True)
def _threads_take_turns() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        take_turns(monkeypatch)
        yield
