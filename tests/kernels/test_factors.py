"""Products with skinny factors: arguments that must be refused, and golden bits."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparse_ring.kernels.base import Floats, Kernels
from sparse_ring.kernels.cpu.kernels import CpuKernels
from sparse_ring.kernels.table import kernels_for
from tests.contracts.kernel_cases import IMPLEMENTATIONS, NATIVE

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "factors.json").read_text())


def f(n: int) -> Any:
    return np.zeros(n, dtype=np.float32)


def frozen(n: int) -> Any:
    array = f(n)
    array.flags.writeable = False
    return array


# A matrix of 3 rows and 5 columns, and factors of 2 columns.
BAD: dict[str, tuple[str, Callable[[Kernels], Any]]] = {
    "rank of 0": ("rank is 0, but must be at least 1", lambda k: k.skinny_right(f(15), 3, 5, 0, f(0), f(0))),
    "rows": ("rows is -3, but must be at least 0", lambda k: k.skinny_right(f(15), -3, -5, 2, f(10), f(6))),
    "columns": ("columns is -5", lambda k: k.skinny_left(f(15), 3, -5, 2, f(6), f(10))),
    "right matrix": ("matrix has 14 elements, but must have 15", lambda k: k.skinny_right(f(14), 3, 5, 2, f(10), f(6))),
    "right factor": ("factor has 6 elements, but must have 10", lambda k: k.skinny_right(f(15), 3, 5, 2, f(6), f(6))),
    "right out": ("out has 10 elements, but must have 6", lambda k: k.skinny_right(f(15), 3, 5, 2, f(10), f(10))),
    "left matrix": ("matrix has 16", lambda k: k.skinny_left(f(16), 3, 5, 2, f(6), f(10))),
    "left factor": ("factor has 10 elements, but must have 6", lambda k: k.skinny_left(f(15), 3, 5, 2, f(10), f(10))),
    "left out": ("out has 6 elements, but must have 10", lambda k: k.skinny_left(f(15), 3, 5, 2, f(6), f(6))),
    "outer left": ("left has 5", lambda k: k.skinny_outer(f(5), f(10), 3, 5, 2, f(15), f(15))),
    "outer right": ("right has 9", lambda k: k.skinny_outer(f(6), f(9), 3, 5, 2, f(15), f(15))),
    "outer residual": ("residual has 14", lambda k: k.skinny_outer(f(6), f(10), 3, 5, 2, f(14), f(15))),
    "outer out": ("out has 16", lambda k: k.skinny_outer(f(6), f(10), 3, 5, 2, f(15), f(16))),
    "outer rank": ("rank is -1", lambda k: k.skinny_outer(f(6), f(10), 3, 5, -1, f(15), f(15))),
    "orthonormalise length": ("factor has 5 ", lambda k: k.orthonormalise(f(5), 3, 2)),
    "orthonormalise rank": ("rank is 0", lambda k: k.orthonormalise(f(0), 3, 0)),
    "orthonormalise rows": ("rows is -1", lambda k: k.orthonormalise(f(6), -1, -6)),
    "read-only": ("factor must be a writable", lambda k: k.orthonormalise(frozen(6), 3, 2)),
    "dtype": ("matrix must be a 1-D", lambda k: k.skinny_left(np.zeros(15), 3, 5, 2, f(6), f(10))),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", NATIVE)
@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_refused_by_name(name: str, case: str) -> None:
    match, call = BAD[case]
    with pytest.raises(ValueError, match=match):
        call(CpuKernels(name))


def numbers(count: int, start: int) -> Floats:
    """Values between -1 and 1 from a multiplicative sequence: no generator's version can change them."""
    steps = (np.arange(start, start + count, dtype=np.uint64) * 2654435761 % 2**32).astype(np.float64)
    return (steps / 2**31 - 1).astype(np.float32)


def results(kernels: Kernels, rows: int, columns: int, rank: int) -> dict[str, Floats]:
    """One round of power iteration over such values."""
    residual, right = numbers(rows * columns, 1), numbers(columns * rank, 7)
    found = {"right": f(rows * rank), "left": f(columns * rank), "outer": f(rows * columns)}
    kernels.skinny_right(residual, rows, columns, rank, right, found["right"])
    found["orthonormalise"] = found["right"].copy()
    kernels.orthonormalise(found["orthonormalise"], rows, rank)
    kernels.skinny_left(residual, rows, columns, rank, found["orthonormalise"], found["left"])
    kernels.skinny_outer(found["orthonormalise"], found["left"], rows, columns, rank, residual, found["outer"])
    return {**found, "residual": residual}


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: f"{case['rows']}x{case['columns']}-{case['rank']}")
def test_golden_bits(name: str, case: dict[str, Any]) -> None:
    """Ranks of different versions must not meet with different sums."""
    found = results(kernels_for(name), case["rows"], case["columns"], case["rank"])
    described = {
        kernel: {"first": array[:2].astype("<f4").tobytes().hex(), "sha256": hashlib.sha256(array).hexdigest()}
        for kernel, array in found.items()
    }
    assert described == case["results"]
