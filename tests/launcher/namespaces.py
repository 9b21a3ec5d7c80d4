"""Several hosts on one machine, for a file of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.netlab import Lab, missing


@pytest.fixture(scope="module")
def hosts() -> Iterator[Lab]:
    if reasons := missing():
        pytest.skip(f"several hosts: {'; '.join(reasons)}")
    with Lab(hosts=2) as lab:
        yield lab
