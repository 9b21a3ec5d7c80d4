"""Golden bytes of every code: what one version wrote, every later one must write and read."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparse_ring.encode import VALUE_NAMES
from sparse_ring.kernels.base import Indices, Kernels
from sparse_ring.kernels.table import kernels_for
from tests.contracts.kernel_cases import BOUNDS, IMPLEMENTATIONS, assert_same_bits

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "kernels.json").read_text())


@pytest.fixture(params=IMPLEMENTATIONS, scope="module")
def kernels(request: pytest.FixtureRequest) -> Kernels:
    return kernels_for(request.param)


def indices_of(case: dict[str, Any]) -> Indices:
    """Listed, or gaps from the top bits of a multiplicative sequence (no generator's version can change them)."""
    if "indices" in case:
        return np.array(case["indices"], dtype=np.uint32)
    steps = (np.arange(1, case["count"] + 1, dtype=np.uint64) * 2654435761 % 2**32) >> np.uint64(case["shift"])
    return (np.cumsum(steps + 1) - 1).astype(np.uint32)


@pytest.mark.parametrize("case", GOLDEN["indices"], ids=lambda case: f"{case['code']}-{case['name']}")
def test_index_codes(kernels: Kernels, case: dict[str, Any]) -> None:
    indices, numel, code = indices_of(case), case["numel"], case["code"]
    out = np.zeros(BOUNDS[code](len(indices), numel), dtype=np.uint8)
    payload = out[: getattr(kernels, f"{code}_encode")(indices, numel, out)]
    if "hex" in case:
        assert payload.tobytes().hex() == case["hex"]
    else:
        assert (len(payload), hashlib.sha256(payload.data).hexdigest()) == (case["bytes"], case["sha256"])
    decoded = np.zeros(len(indices), dtype=np.uint32)
    getattr(kernels, f"{code}_decode")(payload, numel, decoded)
    assert_same_bits(decoded, indices)


@pytest.mark.parametrize("case", GOLDEN["values"], ids=lambda case: f"{case['code']}-{case['name']}")
def test_value_codes(kernels: Kernels, case: dict[str, Any]) -> None:
    values = np.array(case["values"], dtype=np.float32)
    code, decoded = VALUE_NAMES[case["code"]], np.zeros_like(values)
    out = np.zeros(len(case["hex"]) // 2, dtype=np.uint8)
    assert len(out) == code.size(len(values))
    assert code.encode(values, out, decoded, kernels) == case["scale"]
    assert out.tobytes().hex() == case["hex"]
    seen = np.zeros_like(values)
    code.decode(out, case["scale"], seen, kernels)
    assert_same_bits(seen, np.array(case["decoded"], dtype=np.float32))
    assert_same_bits(decoded, seen)
