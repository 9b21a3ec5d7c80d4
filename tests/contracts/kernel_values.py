"""What every implementation of the value codes must do: exact values worked out by hand, and properties.

A subclass runs under a module-scoped fixture ``kernels``.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparse_ring.encode import VALUE_CODES, Coding
from sparse_ring.kernels.base import Floats, Kernels, level_table, levels_size
from tests.contracts.kernel_cases import assert_same_bits, examples, floats, guarded, seeds, sizes

BITS = [2, 3, 4, 8]
LARGEST = 3.4028235e38


def f32(*values: float) -> Floats:
    return np.array(values, dtype=np.float32)


def u32(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.uint32)


def levels_encode(kernels: Kernels, values: Floats, bits: int) -> tuple[float, np.ndarray, Floats]:
    out, decoded = np.zeros(levels_size(len(values), bits), np.uint8), np.zeros_like(values)
    return kernels.levels_encode(values, bits, out, decoded), out, decoded


class ValueContract:
    """Value codes with honest payloads."""

    def test_float16_scale_is_the_power_of_two_below_the_largest(self, kernels: Kernels) -> None:
        for largest, scale in [(6.0, 4.0), (4.0, 4.0), (3.4028235e38, 2.0**127), (1e-45, 2.0**-126), (0.0, 1.0)]:
            values, out, decoded = f32(-largest, 0), np.zeros(2, np.uint16), f32(9, 9)
            assert kernels.float16_encode(values, out, decoded) == scale
        assert kernels.float16_encode(f32(), np.zeros(0, np.uint16), f32()) == 1.0

    def test_float16_rounds_to_nearest_even(self, kernels: Kernels) -> None:
        step = 2.0**-10
        values = np.tile(
            f32(1 + step / 2, 1 + 3 * step / 2, -1 - step / 2 - 2.0**-20, 2.0**-24, 2.0**-25, -(2.0**-25)), 4
        )
        out, decoded = np.zeros(24, np.uint16), np.zeros(24, np.float32)
        assert kernels.float16_encode(values, out, decoded) == 1.0
        assert out[:6].tolist() == [0x3C00, 0x3C02, 0xBC01, 0x0001, 0x0000, 0x8000]
        assert_same_bits(out, np.tile(out[:6], 4))
        assert_same_bits(decoded, np.tile(f32(1, 1 + 2 * step, -1 - step, 2.0**-24, 0.0, -0.0), 4))

    def test_sign_keeps_signs_of_zero_and_the_mean(self, kernels: Kernels) -> None:
        values, out, decoded = f32(1, -3, 0.0, -0.0, 5, -6, 7, 2, -8), np.zeros(2, np.uint8), np.zeros(9, np.float32)
        scale = kernels.sign_encode(values, out, decoded)
        assert scale == float(np.float32(32 / 9))
        assert out.tolist() == [0b00101010, 0b1]
        assert_same_bits(decoded, f32(1, -1, 1, -1, 1, -1, 1, 1, -1) * np.float32(scale))
        assert kernels.sign_encode(f32(), out[:0], decoded[:0]) == 0.0

    @examples
    @given(size=sizes, seed=seeds)
    def test_receivers_see_what_the_encoder_said(self, kernels: Kernels, size: int, seed: int) -> None:
        values = floats(size, seed)
        for code in VALUE_CODES.values():
            out, check_out = guarded(code.size(size), np.uint8)
            said, check_said = guarded(size, np.float32)
            seen, check_seen = guarded(size, np.float32)
            scale = code.given(Coding(seed=seed, scale=1.5)).encode(values, out, said, kernels)
            check_out()
            code.decode(out, scale, seen, kernels)
            assert_same_bits(seen, said)
            check_said()
            check_seen()

    def test_bfloat16_rounds_to_nearest_even_and_keeps_nan(self, kernels: Kernels) -> None:
        bits = u32(0x3F808000, 0x3F818000, 0x3F808001, 0x80000000, 0x7F800000, 0x7F7FFFFF, 0x7F800001, 0xFFFFFFFF, 1)
        out = np.zeros(9, np.uint16)
        kernels.float32_to_bfloat16(bits.view(np.float32), out)
        assert out.tolist() == [0x3F80, 0x3F82, 0x3F81, 0x8000, 0x7F80, 0x7F80, 0x7FC0, 0xFFC0, 0]
        widened = np.zeros(9, np.float32)
        kernels.bfloat16_to_float32(out, widened)
        assert widened.view(np.uint32).tolist() == [half << 16 for half in out.tolist()]

    def test_halves_round_to_nearest_even_and_overflow_to_infinity(self, kernels: Kernels) -> None:
        bits = u32(
            0x3F801000, 0x3F803000, 0x3F801001, 0x80000000, 0x477FEFFF, 0x477FF000, 0x7F800000, 0x7F800001, 0xFFFFFFFF,
            0x33000000, 0x33000001, 0x387FC000, 0xFF800000, 1,
        )  # fmt: skip
        expected = [
            0x3C00, 0x3C02, 0x3C01, 0x8000, 0x7BFF, 0x7C00, 0x7C00, 0x7E00, 0xFFFF, 0, 1, 0x03FF, 0xFC00, 0,
        ]  # fmt: skip
        out = np.zeros(14, np.uint16)
        kernels.float32_to_float16(bits.view(np.float32), out)
        assert out.tolist() == expected
        widened = np.zeros(4, np.float32)
        kernels.float16_to_float32(np.array([0x3C01, 0x0001, 0x7C01, 0xFC00], np.uint16), widened)
        assert widened.view(np.uint32).tolist() == [0x3F802000, 0x33800000, 0x7FC02000, 0xFF800000]

    def test_halves_may_lie_at_odd_addresses(self, kernels: Kernels) -> None:
        buffer, decoded, seen = np.zeros(41, np.uint8), np.zeros(20, np.float32), np.zeros(20, np.float32)
        halves = buffer[1:].view(np.uint16)
        values = np.arange(20, dtype=np.float32)
        scale = kernels.float16_encode(values, halves, decoded)
        kernels.float16_decode(halves, scale, seen)
        assert_same_bits(seen, values)
        kernels.float32_to_bfloat16(values, halves)
        kernels.bfloat16_to_float32(halves, seen)
        assert_same_bits(seen, values)
        kernels.float32_to_float16(values, halves)
        kernels.float16_to_float32(halves, seen)
        assert_same_bits(seen, values)

    def test_bfloat16_values_stay_finite(self, kernels: Kernels) -> None:
        step = 2.0**-7
        values = np.tile(f32(1 + step / 2, 1 + 3 * step / 2, -1, LARGEST, -LARGEST, 1e-45, -0.0, 0.0), 5)
        out, decoded = np.zeros(40, np.uint16), np.zeros(40, np.float32)
        assert kernels.bfloat16_encode(values, out, decoded) == 1.0
        assert out.tolist() == [0x3F80, 0x3F82, 0xBF80, 0x7F7F, 0xFF7F, 0x0000, 0x8000, 0x0000] * 5
        assert decoded.view(np.uint32).tolist() == [half << 16 for half in out.tolist()]

    def test_two_levels_by_hand(self, kernels: Kernels) -> None:
        # Magnitudes 1, 1, 2, 4: low 1, mean excess 1, so that levels are 1.59375 and 3.59375, and 1.59375 more divides them.
        scale, out, decoded = levels_encode(kernels, f32(1, -1, 2, -4), 2)
        assert scale == 1.0
        assert out.tobytes() == f32(1).tobytes() + bytes([0b11_00_10_00])
        assert_same_bits(decoded, f32(1.59375, -1.59375, 1.59375, -3.59375))

    def test_a_midpoint_belongs_to_the_level_above(self, kernels: Kernels) -> None:
        # Low 0 and mean excess 1: each midpoint, the float32 before it, and what fills the mean up to 1.
        for bits in (2, 3, 4):
            table = level_table(bits)
            for level, midpoint in enumerate((table[:-1] + table[1:]) / np.float32(2), start=1):
                below = np.nextafter(midpoint, np.float32(0))
                values = np.array([0, 0, 0, 0, 0, 0, 0, 0, 0, midpoint, 10 - midpoint], np.float32)
                for probe, expected in ((midpoint, level), (below, level - 1)):
                    values[9], values[10] = probe, np.float32(11) - probe
                    scale, out, decoded = levels_encode(kernels, values, bits)
                    assert scale == 1.0
                    assert decoded[9] == table[expected]
                    assert len(out) == 4 + (11 * bits + 7) // 8

    def test_128_levels_by_hand(self, kernels: Kernels) -> None:
        # Low 1, range 16384: the level is the integer square root of the excess.
        excess = [0, 1, 3, 4, 8, 9, 15128, 15129, 16383, 16384]
        scale, out, decoded = levels_encode(kernels, f32(*(1 + e for e in excess), -1), 8)
        levels = [0, 1, 1, 2, 2, 3, 122, 123, 127, 127]
        assert scale == 16384.0
        assert out.tobytes() == f32(1).tobytes() + bytes([*levels, 0x80])
        assert_same_bits(decoded, f32(*(1 + (2 * level + 1) ** 2 / 4 for level in levels), -1.25))

    @pytest.mark.parametrize("bits", BITS)
    def test_equal_magnitudes_are_exact(self, kernels: Kernels, bits: int) -> None:
        for magnitude in (0.0, 1e-45, 0.1, LARGEST):
            for size in (1, 7, 70):
                values = np.where(np.arange(size) % 3, magnitude, -magnitude).astype(np.float32)
                scale, _, decoded = levels_encode(kernels, values, bits)
                assert scale == 0.0
                assert_same_bits(decoded, values)

    @pytest.mark.parametrize("bits", BITS)
    def test_levels_of_the_largest_values_stay_finite(self, kernels: Kernels, bits: int) -> None:
        values = np.tile(f32(0, LARGEST, -LARGEST, LARGEST), 20)
        scale, out, decoded = levels_encode(kernels, values, bits)
        assert np.isfinite(decoded).all()
        assert np.array_equal(np.signbit(decoded), np.signbit(values))
        kernels.levels_decode(out, bits, scale, decoded)

    @examples
    @given(size=sizes.filter(bool), seed=seeds, bits=st.sampled_from(BITS))
    def test_levels_bring_values_nearer(self, kernels: Kernels, size: int, seed: int, bits: int) -> None:
        """What is left after sending is smaller than what was there: error feedback cannot grow."""
        values = floats(size, seed, spread=False)
        decoded = levels_encode(kernels, values, bits)[2].astype(np.float64)
        assert np.square(values - decoded).sum() <= 0.6 * np.square(values.astype(np.float64)).sum()

    def test_no_values_take_no_bytes(self, kernels: Kernels) -> None:
        for bits in BITS:
            assert levels_encode(kernels, f32(), bits)[:2][0] == 0.0
            kernels.levels_decode(np.zeros(0, np.uint8), bits, 0.0, f32())
