"""What only the CUDA twin has: arguments on the device, refusals by name, the sparse step, its helpers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import cuda

from sparse_ring.errors import MessageError
from sparse_ring.kernels.base import SPARE
from sparse_ring.kernels.cuda.kernels import CudaKernels
from sparse_ring.kernels.quantize import BLOCK8, FOUR4, TERNARY
from sparse_ring.kernels.reference.kernels import ReferenceKernels
from sparse_ring.kernels.reference.step import sparse_step
from tests.contracts.kernel_cases import assert_same_bits, floats
from tests.kernels.test_cpu import BAD
from tests.kernels.test_factors import BAD as BAD_FACTORS

KERNELS, REFERENCE = CudaKernels(), ReferenceKernels()


def on_device(array: Any) -> Any:
    resident = cuda.device_array(len(array), array.dtype)
    resident.copy_to_device(array)
    return resident


def test_arrays_on_the_device_are_used_where_they_are() -> None:
    g, u, r = (floats(700, seed) for seed in (2, 4, 6))
    indices, values = np.zeros(700 + SPARE, np.uint32), np.zeros(700 + SPARE, np.float32)
    resident = [on_device(array) for array in (g, u, r, indices, values)]
    count = KERNELS.accumulate_select(*resident[:3], 0.9, False, 1.5, *resident[3:])
    assert count == REFERENCE.accumulate_select(g, u, r, 0.9, False, 1.5, indices, values)
    for actual, expected in zip(resident[1:3], (u, r), strict=True):
        assert_same_bits(actual.copy_to_host(), expected)
    for actual, expected in zip(resident[3:], (indices, values), strict=True):
        assert_same_bits(actual.copy_to_host()[:count], expected[:count])


def test_a_payload_may_lie_on_the_device() -> None:
    indices = np.array([3, 4, 9, 800], np.uint32)
    for code in ("golomb", "interpolative", "bitpack", "bitmap", "elias_fano", "block16"):
        out, found = on_device(np.zeros(4000, np.uint8)), on_device(np.zeros(4, np.uint32))
        size = getattr(KERNELS, f"{code}_encode")(on_device(indices), 900, out)
        getattr(KERNELS, f"{code}_decode")(out[:size], 900, found)
        assert_same_bits(found.copy_to_host(), indices)


def test_factors_and_whole_gradients_may_lie_on_the_device() -> None:
    matrix, left, right = floats(7 * 30, 2), floats(7 * 2, 4), floats(30 * 2, 6)
    found, out = np.zeros(7 * 2, np.float32), np.zeros(7 * 30, np.float32)
    on_matrix, on_left, on_right, on_found, on_out = map(on_device, (matrix, left, right, found, out))
    KERNELS.skinny_right(on_matrix, 7, 30, 2, on_right, on_found)
    KERNELS.orthonormalise(on_found, 7, 2)
    KERNELS.skinny_outer(on_left, on_right, 7, 30, 2, on_matrix, on_out)
    REFERENCE.skinny_right(matrix, 7, 30, 2, right, found)
    REFERENCE.orthonormalise(found, 7, 2)
    REFERENCE.skinny_outer(left, right, 7, 30, 2, matrix, out)
    for actual, expected in ((on_found, found), (on_matrix, matrix), (on_out, out)):
        assert_same_bits(actual.copy_to_host(), expected)
    for scheme in (BLOCK8, FOUR4, TERNARY):
        payload, said = np.zeros(scheme.size(300), np.uint8), np.zeros(300, np.float32)
        on_payload, on_said, seen = on_device(payload), on_device(said), on_device(said)
        values = floats(300, 8)
        scale = KERNELS.quantize_encode(on_device(values), scheme, 2.0, 5, on_payload, on_said)
        KERNELS.quantize_decode(on_payload, scheme, scale, seen)
        assert scale == REFERENCE.quantize_encode(values, scheme, 2.0, 5, payload, said)
        assert_same_bits(on_payload.copy_to_host(), payload)
        assert_same_bits(seen.copy_to_host(), said)


def test_a_refused_payload_leaves_the_output_alone() -> None:
    payload = np.zeros(400, np.uint8)
    payload[:4] = [1, 0, 0, 0]
    found = on_device(np.full(9, 7, np.uint32))
    with pytest.raises(MessageError):
        KERNELS.golomb_decode(payload, 900, found)
    values = on_device(np.full(9, 7, np.float32))
    with pytest.raises(MessageError):
        KERNELS.float16_decode(np.array([0x3C00] * 8 + [0x7C00], np.uint16), 1.0, values)
    with pytest.raises(MessageError):
        KERNELS.interpolative_decode(np.zeros(1, np.uint8), 900, found)
    with pytest.raises(MessageError):
        KERNELS.quantize_decode(np.array([0, 243], np.uint8), TERNARY, 1.0, values)
    assert found.copy_to_host().tolist() == values.copy_to_host().tolist() == [7] * 9


@pytest.mark.parametrize("case", [*BAD, *BAD_FACTORS])
def test_bad_arguments_are_refused_by_name(case: str) -> None:
    match, call = {**BAD, **BAD_FACTORS}[case]
    with pytest.raises(ValueError, match=match):
        call(KERNELS)  # type: ignore[arg-type]


def test_a_bad_index_leaves_everything_untouched() -> None:
    out, indices = np.ones(20, np.float32), np.array([0, 20, 1], np.uint32)
    three = np.ones(3, np.float32)
    with pytest.raises(ValueError, match="below numel"):
        KERNELS.scatter_add(out, indices, three, 1.0)
    with pytest.raises(ValueError, match="below numel"):
        KERNELS.update_residual(out, None, indices, three, three)
    with pytest.raises(ValueError, match="below numel"):
        KERNELS.sparse_step(out, out.copy(), indices, 1.0)
    assert out.tolist() == [1.0] * 20


def test_a_sparse_step_rounds_the_product_then_the_difference() -> None:
    near_one = np.float32(1 + 2.0**-12)
    indices = np.array([2, 5, 299], np.uint32)
    parameter, gradient = np.full(300, 1 + 2.0**-11, np.float32), np.full(300, near_one)
    expected = parameter.copy()
    sparse_step(expected, gradient, indices, float(near_one))
    KERNELS.sparse_step(parameter, gradient, indices, float(near_one))
    assert_same_bits(parameter, expected)
    assert parameter[indices].tolist() == [0.0] * 3
    assert np.count_nonzero(parameter) == 297
