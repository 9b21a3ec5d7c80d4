"""Names of kernels."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from sparse_ring import _native
from sparse_ring.errors import ConfigError
from sparse_ring.kernels.table import kernels_for


@pytest.fixture
def without_avx2(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    kernels_for.cache_clear()
    monkeypatch.setattr(_native, "supported", lambda: ("scalar",))
    yield
    kernels_for.cache_clear()


def test_auto_is_the_best_native_table() -> None:
    assert kernels_for().name == kernels_for("auto").name == _native.supported()[-1]


@pytest.mark.parametrize("name", ["reference", *_native.supported()])
def test_each_name_gives_its_kernels(name: str) -> None:
    assert kernels_for(name).name == name
    assert kernels_for(name) is kernels_for(name)


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(
        ConfigError, match=r"SPARSE_RING_KERNELS is 'sse9', but must be one of auto, scalar, .*reference"
    ):
        kernels_for("sse9")


@pytest.mark.usefixtures("without_avx2")
def test_an_unsupported_name_is_refused() -> None:
    assert kernels_for("auto").name == "scalar"
    with pytest.raises(ConfigError, match="'avx2', but must be one of auto, scalar, reference on this machine"):
        kernels_for("avx2")


WITHOUT_NUMBA = """
import sys
sys.modules["numba"] = None
from sparse_ring.kernels.table import kernels_for
print(kernels_for("auto").name in ("scalar", "avx2", "avx512"))
kernels_for("cuda")
"""
WITHOUT_A_DEVICE = """
import sys
from sparse_ring.kernels.table import kernels_for
kernels_for("auto")
print("numba" not in sys.modules)
from numba import cuda
cuda.is_available = lambda: False
kernels_for("cuda")
"""


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (WITHOUT_NUMBA, "on this machine: Numba is missing (pip install 'sparse-ring[cuda]')."),
        (WITHOUT_A_DEVICE, "on this machine: Numba finds no CUDA device."),
    ],
)
def test_cuda_says_what_it_needs_and_nobody_else_needs_it(program: str, reason: str) -> None:
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.stdout == "True\n"
    assert result.stderr.splitlines()[-1].endswith(reason)
    assert "ConfigError: SPARSE_RING_KERNELS is 'cuda', but must be one of auto, scalar" in result.stderr
