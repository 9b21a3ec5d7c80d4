"""Fixtures of the network lab's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.netlab import Lab, missing


@pytest.fixture(scope="session")
def possible() -> None:
    """Skip where no lab can be made, and say why."""
    if reasons := missing():
        pytest.skip(f"network lab: {'; '.join(reasons)}")


@pytest.fixture
def lab(possible: None) -> Iterator[Lab]:
    with Lab(hosts=2) as made:
        yield made
