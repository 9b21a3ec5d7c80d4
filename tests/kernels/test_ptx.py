"""What the CUDA kernels compile to, without a GPU: nothing in their PTX may change bits or depend on who comes first."""

from __future__ import annotations

import importlib.metadata

import pytest

from sparse_ring.kernels.base import Kernels

if not any(found.name == "nvidia-cuda-nvcc-cu12" for found in importlib.metadata.distributions()):
    pytest.skip("nvidia-cuda-nvcc-cu12, which has the compiler, is not installed", allow_module_level=True)

from benchmarks.ptx import TARGETS, assembled, faults_of, kernels, ptx_of


@pytest.mark.parametrize("target", TARGETS)
def test_every_kernel_compiles_to_exact_ptx(target: int) -> None:
    found = {name: ptx_of(function, signature, target) for name, (function, signature) in kernels().items()}
    assert {name: faults for name, ptx in found.items() if (faults := faults_of(ptx))} == {}
    assert all(f".target sm_{target}" in ptx for ptx in found.values())
    assert "mul.rn.f32" in found["accumulate_tiles"]
    assert "div.rn.f32" in found["write_levels"]
    assert "add.rn.f64" in found["sum_in_order"]
    assert "mul.rn.f32" in found["multiply_right"]
    assert all(exact in found["make_columns_orthonormal"] for exact in ("mul.rn.f64", "sqrt.rn.f64", "cvt.rn.f32.f64"))
    assert all(exact in found["write_digits"] for exact in ("div.rn.f32", "cvt.rni.s64.f32"))


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("fma.rn.f32 %f4, %f1, %f2, %f3;", "a fused multiply-add on floats"),
        ("fma.rn.ftz.f64 %d4, %d1, %d2, %d3;", "a fused multiply-add on floats"),
        ("mad.f32 %f4, %f1, %f2, %f3;", "a fused multiply-add on floats"),
        ("add.f32 %f3, %f1, %f2;", "arithmetic without explicit rounding"),
        ("mul.f64 %d3, %d1, %d2;", "arithmetic without explicit rounding"),
        ("div.approx.f32 %f3, %f1, %f2;", "flushing or approximating"),
        ("sqrt.rn.ftz.f32 %f2, %f1;", "flushing or approximating"),
        ("atom.global.add.u32 %r1, [%rd1], 1;", "an atomic operation"),
        ("red.shared.add.f32 [%rd1], %f1;", "an atomic operation"),
    ],
)
def test_faults_are_seen(line: str, fault: str) -> None:
    assert any(fault in found for found in faults_of(f"\t{line}\n"))


@pytest.mark.parametrize(
    "line", ["mad.lo.s64 %rd3, %rd1, 8, %rd2;", "add.rn.f32 %f3, %f1, %f2;", "// add.f32", "add.s64 %rd3, %rd1, %rd2;"]
)
def test_exact_lines_pass(line: str) -> None:
    assert faults_of(f"\t{line}\n") == ()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kernel", ["sum_in_order", "make_columns_orthonormal"])
def test_the_largest_kernels_do_not_spill(kernel: str, target: int) -> None:
    found = assembled(ptx_of(*kernels()[kernel], target), target)
    assert found["spilled_bytes"] == 0
    assert 0 < found["registers"] <= 128


def test_the_twin_has_the_whole_protocol() -> None:
    twin = importlib.import_module("sparse_ring.kernels.cuda.kernels").CudaKernels
    missing = {name for name in vars(Kernels) if not name.startswith("_") and not hasattr(twin, name)}
    assert missing == set()
