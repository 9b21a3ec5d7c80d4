"""Golden bytes of every code: what one version wrote, every later one must write and read."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparse_ring.encode import VALUE_NAMES, WHOLE_NAMES, Coding
from sparse_ring.kernels.base import Floats, Indices, Kernels
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


def whole_values_of(case: dict[str, Any]) -> Floats:
    """Listed, or cubes of a multiplicative sequence between -1 and 1."""
    if "values" in case:
        return np.array(case["values"], dtype=np.float32)
    sequence = np.arange(1, case["count"] + 1, dtype=np.uint64) * 2654435761 % 2**32
    cubes: Floats = ((sequence.astype(np.float64) / 2**31 - 1) ** 3).astype(np.float32)
    return cubes


def same_digest(array: Any, digest: str) -> bool:
    return hashlib.sha256(array.data).hexdigest() == digest


@pytest.mark.parametrize("case", GOLDEN["whole"], ids=lambda case: f"{case['code']}-{case['name']}")
def test_codes_of_whole_gradients(kernels: Kernels, case: dict[str, Any]) -> None:
    values = whole_values_of(case)
    code = WHOLE_NAMES[case["code"]].given(Coding(seed=7, step=8, parameter=9, scale=case["given"]))
    out, decoded, seen = np.zeros(code.size(len(values)), np.uint8), np.zeros_like(values), np.zeros_like(values)
    assert code.encode(values, out, decoded, kernels) == case["scale"]
    code.decode(out, case["scale"], seen, kernels)
    assert_same_bits(seen, decoded)
    if "hex" in case:
        assert out.tobytes().hex() == case["hex"]
        assert_same_bits(seen, np.array(case["decoded"], dtype=np.float32))
    else:
        assert (len(out), same_digest(out, case["sha256"])) == (case["bytes"], True)
        assert same_digest(seen, case["decoded_sha256"])


def test_every_code_of_whole_gradients_is_golden() -> None:
    assert {case["code"] for case in GOLDEN["whole"]} == set(WHOLE_NAMES)
