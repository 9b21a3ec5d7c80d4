"""Arguments that the native kernels (all of sparse_ring.kernels.cpu) must refuse before touching memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sparse_ring import _native
from sparse_ring.errors import MessageError
from sparse_ring.kernels import reasons
from sparse_ring.kernels.cpu.kernels import CpuKernels
from sparse_ring.kernels.quantize import QSGD4
from tests.contracts.kernel_cases import NATIVE


def f(n: int = 20) -> Any:
    return np.zeros(n, dtype=np.float32)


def u(n: int = 20) -> Any:
    return np.zeros(n, dtype=np.uint32)


def b(n: int = 200) -> Any:
    return np.zeros(n, dtype=np.uint8)


def h(n: int = 20) -> Any:
    return np.zeros(n, dtype=np.uint16)


def d(n: int = 20) -> Any:
    return np.zeros(n, dtype=np.float64)


def read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array


@pytest.fixture(params=NATIVE, scope="module")
def cpu(request: pytest.FixtureRequest) -> CpuKernels:
    return CpuKernels(request.param)


@pytest.mark.parametrize(
    "x",
    [
        np.zeros(20),
        np.zeros(40, dtype=np.float32)[::2],
        np.zeros((2, 10), dtype=np.float32),
        np.zeros(20, dtype=">f4"),
        np.zeros(81, dtype=np.uint8)[1:].view(np.float32),
        np.zeros(20, dtype=np.int32),
        [0.0] * 20,
        b"",
    ],
    ids=["float64", "strided", "2-D", "big-endian", "unaligned", "int32", "list", "bytes"],
)
def test_arrays_of_another_kind_are_refused_by_name(cpu: CpuKernels, x: Any) -> None:
    with pytest.raises(ValueError, match="x must be a 1-D contiguous aligned array of float32 in native byte order"):
        cpu.all_finite(x)


BAD: dict[str, tuple[str, Callable[[CpuKernels], Any]]] = {
    "residual read-only": (
        "residual must be a writable",
        lambda k: k.accumulate(f(), None, read_only(f()), 0.9, False),
    ),
    "velocity dtype": ("velocity must be a writable", lambda k: k.accumulate(f(), d(), f(), 0.9, False)),
    "decoded dtype": ("decoded must be a 1-D", lambda k: k.update_residual(f(), None, u(3), f(3), d(3))),
    "indices signed": ("indices must be a writable", lambda k: k.select(f(), 1.0, np.zeros(20, np.int64), f())),
    "values dtype": ("values must be a writable 1-D .* float32", lambda k: k.select(f(), 1.0, u(), d())),
    "out dtype": ("out must be a writable .* uint16", lambda k: k.float32_to_bfloat16(f(), np.zeros(20, np.int16))),
    "payload dtype": ("payload must be a 1-D", lambda k: k.golomb_decode(np.zeros(9, np.int8), 9, u(1))),
    "residual length": ("residual has 19", lambda k: k.accumulate(f(), None, f(19), 0.9, False)),
    "velocity length": ("velocity has 21", lambda k: k.accumulate(f(), f(21), f(), 0.9, False)),
    "fused residual": ("residual has 19", lambda k: k.accumulate_select(f(), None, f(19), 0.9, False, 1.0, u(), f())),
    "fused velocity": ("velocity has 1 ", lambda k: k.accumulate_select(f(), f(1), f(), 0.9, False, 1.0, u(), f())),
    "fused capacity": ("indices has 15", lambda k: k.accumulate_select(f(), None, f(), 0.9, False, 1.0, u(15), f(15))),
    "select values": ("values has 19", lambda k: k.select(f(), 1.0, u(), f(19))),
    "select capacity": (
        "indices has 15 elements, but must have at least 16",
        lambda k: k.select(f(), 1.0, u(15), f(15)),
    ),
    "k of 0": ("k is 0, but must be from 1 to 20", lambda k: k.kth_magnitude(f(), 0, f())),
    "k too large": ("k is 21, but must be from 1 to 20", lambda k: k.kth_magnitude(f(), 21, f())),
    "scratch": ("scratch has 19", lambda k: k.kth_magnitude(f(), 1, f(19))),
    "update values": ("values has 2", lambda k: k.update_residual(f(), None, u(3), f(2), f(3))),
    "update decoded": ("decoded has 4", lambda k: k.update_residual(f(), None, u(3), f(3), f(4))),
    "update velocity": ("velocity has 19", lambda k: k.update_residual(f(), f(19), u(3), f(3), f(3))),
    "update index": ("below numel, which is 20", lambda k: k.update_residual(f(), f(), u(3) + 20, f(3), f(3))),
    "scatter values": ("values has 2", lambda k: k.scatter_add(f(), u(3), f(2), 1.0)),
    "scatter index": ("below numel, which is 20", lambda k: k.scatter_add(f(), u(3) + 20, f(3), 1.0)),
    "add length": ("out has 19", lambda k: k.add_scaled(f(19), f(), 1.0)),
    "numel too large": ("numel is 4294967296", lambda k: k.golomb_encode(u(1), 2**32, b())),
    "numel negative": ("numel is -1", lambda k: k.bitpack_decode(b(), -1, u(1))),
    "decode numel": ("numel is 4294967296", lambda k: k.golomb_decode(b(), 2**32, u(1))),
    "bitpack numel": ("numel is -1", lambda k: k.bitpack_encode(u(1), -1, b())),
    "bitmap out": ("out has 0 bytes, but must have at least 3", lambda k: k.bitmap_encode(u(1), 20, b(0))),
    "bitmap numel": ("numel is -1", lambda k: k.bitmap_decode(b(), -1, u(1))),
    "elias_fano numel": ("numel is 4294967296", lambda k: k.elias_fano_decode(b(), 2**32, u(1))),
    "block16 numel": ("numel is -1", lambda k: k.block16_encode(u(1), -1, b())),
    "size numel": ("numel is -1", lambda k: k.golomb_size(u(1), -1)),
    "size of more than all": ("below numel, which is 2", lambda k: k.golomb_size(u(3), 2)),
    "bfloat16 values out": ("out has 19", lambda k: k.bfloat16_encode(f(), h(19), f())),
    "bfloat16 values decoded": ("decoded has 19", lambda k: k.bfloat16_encode(f(), h(), f(19))),
    "levels bits": ("bits is 5, but must be one of 2, 3, 4, 8", lambda k: k.levels_encode(f(), 5, b(), f())),
    "levels decoded bits": ("bits is 1, but must be one of", lambda k: k.levels_decode(b(), 1, 1.0, f())),
    "levels out": ("out has 13 elements, but must have 14", lambda k: k.levels_encode(f(), 4, b(13), f())),
    "levels decoded": ("decoded has 19", lambda k: k.levels_encode(f(), 4, b(14), f(19))),
    "quantize out": (
        "out has 13 elements, but must have 14",
        lambda k: k.quantize_encode(f(), QSGD4, 1.0, 0, b(13), f()),
    ),
    "quantize decoded": ("decoded has 19", lambda k: k.quantize_encode(f(), QSGD4, 1.0, 0, b(14), f(19))),
    "float16 out": ("out has 19", lambda k: k.float16_encode(f(), h(19), f())),
    "float16 decoded": ("decoded has 19", lambda k: k.float16_encode(f(), h(), f(19))),
    "sign out": ("out has 2 elements, but must have 3", lambda k: k.sign_encode(f(), b(2), f())),
    "sign decoded": ("decoded has 19", lambda k: k.sign_encode(f(), b(3), f(19))),
    "bfloat16 out": ("out has 19", lambda k: k.float32_to_bfloat16(f(), h(19))),
    "float16 narrowed out": ("out has 19", lambda k: k.float32_to_float16(f(), h(19))),
    "float16 widened out": ("out has 19", lambda k: k.float16_to_float32(h(), f(19))),
    "widened out": ("out has 19", lambda k: k.bfloat16_to_float32(h(), f(19))),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_refused_by_name(cpu: CpuKernels, case: str) -> None:
    match, call = BAD[case]
    with pytest.raises(ValueError, match=match):
        call(cpu)


def test_none_is_refused_where_only_velocity_may_be(cpu: CpuKernels) -> None:
    table = getattr(_native, cpu.name)
    with pytest.raises(ValueError, match="residual must be a writable"):
        table.accumulate(1, f(1), None, None, 0.9, False)
    with pytest.raises(ValueError, match="x must be"):
        table.all_finite(1, None)


def test_a_bad_index_leaves_everything_untouched(cpu: CpuKernels) -> None:
    out, indices = np.ones(20, np.float32), np.array([0, 20, 1], np.uint32)
    with pytest.raises(ValueError, match="below numel"):
        cpu.scatter_add(out, indices, np.ones(3, np.float32), 1.0)
    with pytest.raises(ValueError, match="below numel"):
        cpu.update_residual(out, None, indices, np.ones(3, np.float32), np.ones(3, np.float32))
    assert out.tolist() == [1.0] * 20


def test_a_quotient_of_half_a_gigabyte_does_not_wrap(cpu: CpuKernels) -> None:
    # quotient * M = (2^32 + 1) * (2^32 - 1) = 2^64 - 1, the index "-1" in 64 bits; never-written pages take no memory.
    payload = np.zeros(4 + 2**29 + 5, dtype=np.uint8)
    payload[:4] = 255
    payload[4 + 2**29] = 2
    with pytest.raises(MessageError, match=reasons.INDEX):
        cpu.golomb_decode(payload, 2**32 - 1, u(1))


def test_an_unknown_instruction_set_is_refused() -> None:
    with pytest.raises(ValueError, match="kernels 'avx1024' do not run here"):
        CpuKernels("avx1024")
