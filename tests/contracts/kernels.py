"""What every implementation of the kernels must do: exact values worked out by hand, and properties.

A subclass runs under a module-scoped fixture ``kernels``. ``kernel_values.py`` has the value codes,
``kernel_decoders.py`` the hostile payloads, and ``kernel_twins.py`` compares native implementations with the reference bit by bit.
"""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparse_ring.kernels.base import SPARE, Indices, Kernels, elias_fano_size, golomb_bound, golomb_modulus
from tests.contracts.kernel_cases import (
    BOUNDS,
    INDEX_CODES,
    assert_same_bits,
    coded_supports,
    examples,
    fewer,
    floats,
    guarded,
    outputs,
    seeds,
    sizes,
)
from tests.contracts.kernel_values import ValueContract


def f32(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def u32(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.uint32)


class ArithmeticContract:
    """Accumulation, reductions and updates."""

    def test_accumulate_takes_momentum_before_the_residual(self, kernels: Kernels) -> None:
        g, u, r = f32(1, -2, 0.5), f32(2, 4, -8), f32(10, 20, 30)
        kernels.accumulate(g, u, r, 0.5, False)
        assert_same_bits(u, f32(2, 0, -3.5))
        assert_same_bits(r, f32(12, 20, 26.5))

    def test_accumulate_with_nesterov_adds_the_look_ahead(self, kernels: Kernels) -> None:
        g, u, r = f32(1, -2, 0.5), f32(2, 4, -8), f32(10, 20, 30)
        kernels.accumulate(g, u, r, 0.5, True)
        assert_same_bits(u, f32(2, 0, -3.5))
        assert_same_bits(r, f32(12, 18, 28.75))

    def test_accumulate_without_velocity_adds(self, kernels: Kernels) -> None:
        g, r = f32(1, -2), f32(10, 2)
        kernels.accumulate(g, None, r, 0.5, False)
        assert_same_bits(r, f32(11, 0))

    def test_each_operation_is_rounded_once(self, kernels: Kernels) -> None:
        # (1 + 2^-12)^2 needs one more bit than float32 has: a fused multiply-add would leave 2^-24.
        near_one = 1 + 2.0**-12
        g, u, r = np.full(40, -(1 + 2.0**-11), np.float32), np.full(40, near_one, np.float32), np.zeros(40, np.float32)
        kernels.accumulate(g, u, r, near_one, False)
        assert_same_bits(u, np.zeros(40, np.float32))
        out = np.full(40, -(1 + 2.0**-11), np.float32)
        kernels.add_scaled(out, np.full(40, near_one, np.float32), near_one)
        assert_same_bits(out, np.zeros(40, np.float32))

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    @pytest.mark.parametrize("at", [0, 7, 8, 4095, 4096, 4999])
    def test_all_finite_sees_every_position(self, kernels: Kernels, bad: float, at: int) -> None:
        x = np.full(5000, -3.4028235e38, dtype=np.float32)
        assert kernels.all_finite(x) is True
        x[at] = bad
        assert kernels.all_finite(x) is False

    def test_nothing_is_finite(self, kernels: Kernels) -> None:
        assert kernels.all_finite(f32()) is True

    @examples
    @given(size=sizes.filter(bool), seed=seeds, place=st.floats(0, 1))
    def test_kth_magnitude_is_the_sorted_one(self, kernels: Kernels, size: int, seed: int, place: float) -> None:
        x = floats(size, seed)
        k = 1 + int(place * (size - 1))
        expected = sorted(np.abs(x).tolist(), reverse=True)[k - 1]
        assert kernels.kth_magnitude(x, k, np.zeros_like(x)) == expected

    def test_kth_magnitude_counts_ties(self, kernels: Kernels) -> None:
        x = f32(1, -2, 2, 2, 0, -3)
        assert [kernels.kth_magnitude(x, k, np.zeros_like(x)) for k in range(1, 7)] == [3, 2, 2, 2, 1, 0]

    def test_update_residual_keeps_what_was_not_sent(self, kernels: Kernels) -> None:
        r, u = f32(1, 2, 3, 4), f32(5, 6, 7, 8)
        kernels.update_residual(r, u, u32(1, 3), f32(2, 4), f32(1.5, 5))
        assert_same_bits(r, f32(1, 0.5, 3, -1))
        assert_same_bits(u, f32(5, 0, 7, 0))
        kernels.update_residual(r, None, u32(0), f32(1), f32(1))
        assert_same_bits(r, f32(0, 0.5, 3, -1))

    def test_scatter_add_scales_then_adds(self, kernels: Kernels) -> None:
        out = f32(1, 2, 3)
        kernels.scatter_add(out, u32(2, 0), f32(4, -8), 0.25)
        assert_same_bits(out, f32(-1, 2, 4))

    def test_add_scaled(self, kernels: Kernels) -> None:
        out = f32(1, 2, 3)
        kernels.add_scaled(out, f32(4, -8, 0), 0.25)
        assert_same_bits(out, f32(2, 0, 3))

    def test_sum_magnitudes_follows_its_tree(self, kernels: Kernels) -> None:
        # 2^54 swallows a 1 that is added to it, so that the sum tells which accumulator each element went to.
        huge = 2.0**54
        x = f32(huge, 1, 1, 1, -1, 1, 1, 1, -1)
        assert kernels.sum_magnitudes(x) == huge + 4
        assert kernels.sum_magnitudes(f32(1, -2, 3)) == 6
        assert kernels.sum_magnitudes(f32()) == 0

    @pytest.mark.parametrize("start", [0, 1, 0xDEADBEEF])
    def test_crc32_is_zlibs(self, kernels: Kernels, start: int) -> None:
        data = np.frombuffer(b"123456789", dtype=np.uint8)
        assert kernels.crc32(data) == 0xCBF43926
        assert kernels.crc32(data[4:], kernels.crc32(data[:4])) == 0xCBF43926
        assert kernels.crc32(data, start) == zlib.crc32(b"123456789", start)


class SelectionContract:
    """Selection by threshold, alone and fused."""

    @examples
    @given(size=sizes, seed=seeds, density=st.sampled_from([0.0, 0.001, 0.01, 0.3, 1.0]))
    def test_select_finds_exactly_those_at_or_above(
        self, kernels: Kernels, size: int, seed: int, density: float
    ) -> None:
        x = floats(size, seed)
        k = int(density * size)
        threshold = sorted(np.abs(x).tolist())[size - k] if k else 3.1e38
        threshold = max(threshold, 1e-45)
        indices, values = outputs(size)
        count = kernels.select(x, threshold, indices, values)
        expected = [i for i, value in enumerate(x.tolist()) if abs(value) >= threshold]
        assert indices[:count].tolist() == expected
        assert_same_bits(values[:count], x[expected])

    def test_threshold_is_rounded_and_inclusive_and_nan_never_passes(self, kernels: Kernels) -> None:
        x = np.tile(f32(0.1, -0.1, np.nan, np.inf, 0.09999999), 9)
        indices, values = outputs(45)
        assert kernels.select(x, 0.1, indices, values) == 27
        assert indices[:6].tolist() == [0, 1, 3, 5, 6, 8]

    @pytest.mark.parametrize("capacity", [0, 1, 7, 8, 9, 100, 2999, 3000])
    def test_only_the_capacity_is_written_but_all_are_counted(self, kernels: Kernels, capacity: int) -> None:
        x = np.arange(1, 3001, dtype=np.float32)
        indices, check_indices = guarded(capacity + SPARE, np.uint32)
        values, check_values = guarded(capacity + SPARE, np.float32)
        zeros = np.zeros_like(x)
        for count in (
            kernels.select(x, 0.5, indices, values),
            kernels.accumulate_select(x, zeros, zeros.copy(), 0.0, False, 0.5, indices, values),
        ):
            assert count == 3000
            assert indices[:capacity].tolist() == list(range(capacity))
            assert_same_bits(values[:capacity], x[:capacity])
            check_indices()
            check_values()

    @examples
    @given(size=sizes, seed=seeds, form=st.sampled_from(["plain", "momentum", "nesterov"]))
    def test_fused_is_accumulate_then_select(self, kernels: Kernels, size: int, seed: int, form: str) -> None:
        g, u, r = floats(size, seed), floats(size, seed ^ 1), floats(size, seed ^ 2)
        velocity = None if form == "plain" else u
        twin_velocity = None if form == "plain" else u.copy()
        twin_residual = r.copy()
        kernels.accumulate(g, twin_velocity, twin_residual, 0.9, form == "nesterov")
        expected_indices, expected_values = outputs(size)
        expected = kernels.select(twin_residual, 1.5, expected_indices, expected_values)

        indices, values = outputs(size)
        count = kernels.accumulate_select(g, velocity, r, 0.9, form == "nesterov", 1.5, indices, values)
        assert count == expected
        assert_same_bits(indices[:count], expected_indices[:count])
        assert_same_bits(values[:count], expected_values[:count])
        assert_same_bits(r, twin_residual)
        if velocity is not None and twin_velocity is not None:
            assert_same_bits(velocity, twin_velocity)

    @pytest.mark.parametrize("offset", range(9))
    @pytest.mark.parametrize("size", [3, 40, 2100])
    def test_any_alignment_gives_the_same(self, kernels: Kernels, offset: int, size: int) -> None:
        whole = np.arange(size, dtype=np.float32) % 50
        g, u, r, out = (np.zeros(size + 16, np.float32)[start:][:size] for start in (5, offset // 2, offset, offset))
        g[:], u[:], r[:] = whole, 2 * whole, -whole
        indices, values = outputs(size)
        count = kernels.accumulate_select(g, u, r, 0.5, False, 40.0, indices, values)
        assert_same_bits(u, 2 * whole)
        assert_same_bits(r, whole)
        assert indices[:count].tolist() == [i for i in range(size) if i % 50 >= 40]
        assert_same_bits(values[:count], whole[indices[:count]])
        kernels.accumulate(g, u, r, 0.5, True)
        assert_same_bits(r, 3 * whole)
        kernels.add_scaled(out, g, 2.0)
        assert_same_bits(out, 2 * whole)


class IndexContract:
    """Index codes with honest payloads."""

    @examples
    @given(case=coded_supports)
    def test_indices_survive_the_round_trip(self, kernels: Kernels, case: tuple[str, tuple[Indices, int]]) -> None:
        code, (indices, numel) = case
        bound = BOUNDS[code](len(indices), numel)
        out, check_out = guarded(bound, np.uint8)
        size = getattr(kernels, f"{code}_encode")(indices, numel, out)
        # Where everything is kept, the interpolative code has nothing left to say.
        assert (size == 0) == (len(indices) == 0 or (code == "interpolative" and len(indices) == numel))
        decoded, check_decoded = guarded(len(indices), np.uint32)
        getattr(kernels, f"{code}_decode")(out[:size].copy(), numel, decoded)
        assert_same_bits(decoded, indices)
        check_out()
        check_decoded()

    @examples
    @given(case=coded_supports)
    def test_sizes_are_what_the_encoders_write(self, kernels: Kernels, case: tuple[str, tuple[Indices, int]]) -> None:
        code, (indices, numel) = case
        out = np.zeros(BOUNDS[code](len(indices), numel), np.uint8)
        written = getattr(kernels, f"{code}_encode")(indices, numel, out)
        if code in ("golomb", "interpolative"):
            assert getattr(kernels, f"{code}_size")(indices, numel) == written
        elif code in ("bitpack", "block16"):
            assert getattr(kernels, f"{code}_size")(indices) == written
        elif code == "elias_fano":
            assert elias_fano_size(len(indices), numel, int(indices[-1]) if len(indices) else 0) == written
        else:
            assert written == len(out)

    @pytest.mark.parametrize("usual_gap", [0, 10, 1_000_000])
    def test_golomb_quotients_around_a_machine_word(self, kernels: Kernels, usual_gap: int) -> None:
        for long_quotient in fewer([*range(20, 75), *range(108, 135)]):
            gaps = np.full(1200, usual_gap)
            modulus = golomb_modulus(1200, 1200 * (usual_gap + 1))
            gaps[7::100] = long_quotient * modulus + np.arange(12) % modulus
            indices = (np.cumsum(gaps + 1) - 1).astype(np.uint32)
            numel = int(indices[-1]) + 1
            out, decoded = np.zeros(golomb_bound(1200, numel), np.uint8), np.zeros(1200, np.uint32)
            size = kernels.golomb_encode(indices, numel, out)
            kernels.golomb_decode(out[:size], numel, decoded)
            assert_same_bits(decoded, indices)

    @pytest.mark.parametrize("code", INDEX_CODES)
    @pytest.mark.parametrize("indices", [(3, 3), (4, 2), (0, 8), (0xFFFFFFFF, 1)])
    def test_encoders_refuse_bad_indices(self, kernels: Kernels, code: str, indices: tuple[int, int]) -> None:
        with pytest.raises(ValueError, match="strictly increasing and below numel, which is 8"):
            getattr(kernels, f"{code}_encode")(u32(*indices), 8, np.zeros(100, np.uint8))

    @pytest.mark.parametrize("code", INDEX_CODES)
    def test_encoders_refuse_too_small_an_output(self, kernels: Kernels, code: str) -> None:
        bound = BOUNDS[code](2, 8)
        with pytest.raises(ValueError, match=f"out has {bound - 1} bytes, but must have at least {bound}"):
            getattr(kernels, f"{code}_encode")(u32(1, 2), 8, np.zeros(bound - 1, np.uint8))


class KernelsContract(ArithmeticContract, SelectionContract, IndexContract, ValueContract):
    """All of it, for one implementation."""
