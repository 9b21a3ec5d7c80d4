"""What every implementation of the codes of whole gradients must do: values worked out by hand, statistics, hostile payloads.

A subclass runs under a module-scoped fixture ``kernels``.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparse_ring.errors import MessageError
from sparse_ring.kernels import reasons
from sparse_ring.kernels.base import Bytes, Floats, Kernels
from sparse_ring.kernels.quantize import (
    BLOCK8,
    FOUR4,
    FOUR_TABLES,
    ONE1,
    QSGD2,
    QSGD4,
    QSGD8,
    SCHEMES,
    TERNARY,
    TREE8,
    TWO2,
    Scheme,
    level_magnitudes,
)
from tests.contracts.kernel_cases import assert_same_bits, examples, floats, guarded, seeds, sizes

LARGEST = 3.4028235e38
STOCHASTIC = [QSGD2, QSGD4, QSGD8, TERNARY]
GIVEN = [TERNARY, TWO2]
named = pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)


def f32(*values: float) -> Floats:
    return np.array(values, dtype=np.float32)


def encode(
    kernels: Kernels, scheme: Scheme, values: Floats, scale: float = 1.0, key: int = 0
) -> tuple[Bytes, Floats, float]:
    out, decoded = np.full(scheme.size(len(values)), 0xA5, np.uint8), np.full(len(values), 7, np.float32)
    returned = kernels.quantize_encode(values, scheme, scale, key, out, decoded)
    return out, decoded, returned


def decode(kernels: Kernels, scheme: Scheme, payload: Bytes, count: int, scale: float = 1.0) -> Floats:
    values, check = guarded(count, np.float32)
    try:
        kernels.quantize_decode(payload, scheme, scale, values)
    finally:
        check()
    return values


def head(out: Bytes, scheme: Scheme, count: int) -> list[float]:
    """The scales in a payload."""
    return [float(x) for x in out[: 4 * scheme.scales * scheme.blocks(count)].copy().view("<f4")]


class QuantizeContract:
    """Codes of whole gradients."""

    def test_block8_rounds_to_nearest_even(self, kernels: Kernels) -> None:
        values = f32(127, -127, 1, 0.5, 1.5, -2.5, -0.0, 0.49)
        out, decoded, scale = encode(kernels, BLOCK8, values)
        assert scale == 1.0
        assert out.tobytes() == f32(127).tobytes() + bytes([127, 255, 1, 0, 2, 0x82, 0x80, 0])
        assert_same_bits(decoded, f32(127, -127, 1, 0, 2, -2, -0.0, 0))

    @pytest.mark.parametrize("scheme", [BLOCK8, TREE8, QSGD2, QSGD4, QSGD8, ONE1], ids=lambda scheme: scheme.name)
    def test_a_block_does_not_see_the_others(self, kernels: Kernels, scheme: Scheme) -> None:
        values = floats(3 * scheme.block + 5, 2)
        whole = encode(kernels, scheme, values)[0]
        head_bytes = scheme.head_bytes(len(values))
        for block in range(4):
            first = block * scheme.block
            part = values[first : first + scheme.block]
            alone = encode(kernels, scheme, part)[0]
            own = 4 * scheme.scales
            assert whole[own * block : own * (block + 1)].tobytes() == alone[:own].tobytes()
            if scheme.rounding != "stochastic":
                digits = whole[head_bytes + first // scheme.per_byte :][: len(alone) - own]
                assert digits.tobytes() == alone[own:].tobytes()

    def test_digits_lie_in_columns(self, kernels: Kernels) -> None:
        # One value of +1 or -1 at a time shows where its digit is; 300 = a chunk of 256 and one of 44 in 11 columns.
        for place, byte, shift in [
            (0, 0, 0),
            (63, 63, 0),
            (64, 0, 2),
            (255, 63, 6),
            (256, 64, 0),
            (267, 64, 2),
            (299, 74, 6),
        ]:
            values = np.zeros(300, np.float32)
            values[place] = 1
            out = encode(kernels, TWO2, values)[0]
            assert {i: int(b) for i, b in enumerate(out) if b} == {byte: 1 << shift}
            values[place] = -1
            assert encode(kernels, TWO2, values)[0][byte] == 3 << shift

    def test_trits_by_hand(self, kernels: Kernels) -> None:
        # 7 values in 2 columns: 0 and 2 and 4 and 6 share the first byte; scale and 0 leave nothing to chance.
        values = f32(3, -3, -3, 3, 0, -0.0, 3)
        out, decoded, scale = encode(kernels, TERNARY, values, scale=3.0)
        assert scale == 3.0
        assert out.tolist() == [1 + 2 * 3 + 0 * 9 + 1 * 27, 2 + 1 * 3 + 0 * 9]
        assert_same_bits(decoded, f32(3, -3, -3, 3, 0, 0, 3))
        assert len(encode(kernels, TERNARY, np.ones(320, np.float32))[0]) == 64

    def test_ternary_clips(self, kernels: Kernels) -> None:
        decoded = encode(kernels, TERNARY, f32(5, -1e38, LARGEST, 1e-45), scale=2.0)[1]
        assert_same_bits(decoded[:3], f32(2, -2, 2))
        assert decoded[3] in (0, 2)
        assert not encode(kernels, TERNARY, f32(0, 0, -0.0), scale=0.0)[1].any()

    def test_two2_reaches_the_threshold_or_not(self, kernels: Kernels) -> None:
        for threshold in f32(0.1, 1.9999999, 3e38, 1e-44):
            below = np.nextafter(threshold, np.float32(0))
            values = f32(threshold, -threshold, below, -below, LARGEST, 0)
            out, decoded, scale = encode(kernels, TWO2, values, scale=float(threshold))
            assert scale == float(threshold)
            assert out.tolist() == [0b01_00_01, 0b00_10_11]
            assert_same_bits(decoded, f32(threshold, -threshold, 0, -0.0, threshold, 0))

    def test_one1_takes_the_mean_of_each_side(self, kernels: Kernels) -> None:
        values = np.zeros(4096 + 3, np.float32)
        values[:5] = 2, -1, -4, -0.0, 7
        values[4096:] = -2, -3, -4
        out, decoded, _ = encode(kernels, ONE1, values)
        assert head(out, ONE1, 4099) == [float(np.float32(9 / 4094)), 2.5, 0.0, 3.0]
        assert_same_bits(decoded[:5], f32(9 / 4094, -2.5, -2.5, 9 / 4094, 9 / 4094))
        assert_same_bits(decoded[4096:], f32(-3, -3, -3))

    def test_the_tree_has_seven_decades(self, kernels: Kernels) -> None:
        table = level_magnitudes(TREE8)
        assert np.all(np.diff(table) > 0)
        assert [float(table[2 ** (f + 1) - 1]) for f in range(7)] == [
            float(np.float32(10.0 ** (f - 6))) for f in range(7)
        ]
        for sign in (1, -1):
            decoded = encode(kernels, TREE8, sign * table)[1]
            assert_same_bits(decoded, sign * table)

    @pytest.mark.parametrize("scheme", [BLOCK8, TREE8, FOUR4], ids=lambda scheme: scheme.name)
    def test_the_nearest_level_is_taken(self, kernels: Kernels, scheme: Scheme) -> None:
        rng = np.random.default_rng(3)
        for draw in (rng.random, rng.standard_normal, rng.standard_cauchy, lambda n: 10.0 ** rng.uniform(-7, 0, n)):
            values = draw(scheme.block or 5000).astype(np.float32)
            out, decoded, _ = encode(kernels, scheme, values)
            (unit,) = head(out, scheme, len(values))
            table = int(out[4]) if scheme is FOUR4 else 0
            levels = unit * level_magnitudes(scheme, table).astype(np.float64)
            levels = np.concatenate([-levels[::-1], levels])
            best = np.abs(values.astype(np.float64)[:, np.newaxis] - levels).min(axis=1)
            # A midpoint may go either way by the rounding of the quotient.
            assert np.all(np.abs(values - decoded.astype(np.float64)) <= best + 4e-6 * np.abs(values))

    @pytest.mark.parametrize(
        ("draw", "table"), [("standard_normal", 0), ("laplace", 1), ("heavy", 2)], ids=["normal", "Laplace", "Student"]
    )
    def test_four4_chooses_by_the_distribution(self, kernels: Kernels, draw: str, table: int) -> None:
        rng = np.random.default_rng(4)
        drawn = rng.standard_t(3, 20_000) if draw == "heavy" else getattr(rng, draw)(size=20_000)
        values = drawn.astype(np.float32)
        errors = []
        for zeros in (0, 9):  # exact zeros, as behind a ReLU, are not part of the distribution
            padded = np.concatenate([values, np.zeros(zeros * len(values), np.float32)])
            out, decoded, _ = encode(kernels, FOUR4, padded)
            assert out[4:8].tolist() == [table, 0, 0, 0]
            errors.append(
                np.square(padded - decoded, dtype=np.float64).sum() / np.square(values, dtype=np.float64).sum()
            )
        assert errors[0] == pytest.approx(errors[1])
        assert errors[0] < (0.014, 0.022, 0.06)[table]

    def test_four4_of_one_magnitude_is_exact(self, kernels: Kernels) -> None:
        for magnitude in (LARGEST, 1.5, 1e-45):
            values = f32(magnitude, -magnitude, 0, magnitude)
            out, decoded, _ = encode(kernels, FOUR4, values)
            assert head(out, FOUR4, 4) == [float(np.float32(magnitude))]
            assert_same_bits(decoded, values)

    @named
    def test_extremes_stay_finite_and_zero_stays_zero(self, kernels: Kernels, scheme: Scheme) -> None:
        for values in (np.full(700, LARGEST, np.float32), f32(LARGEST, -LARGEST, 1e-45, -1e-45, 0), f32(1e-45, -1e-45)):
            out, decoded, scale = encode(kernels, scheme, values, scale=LARGEST)
            assert np.isfinite(decoded).all()
            assert_same_bits(decode(kernels, scheme, out, len(values), scale), decoded)
        assert not encode(kernels, scheme, np.zeros(700, np.float32))[1].any()

    @named
    def test_no_values_take_no_bytes(self, kernels: Kernels, scheme: Scheme) -> None:
        out, _, scale = encode(kernels, scheme, f32(), scale=2.5)
        assert (len(out), scale) == (0, 2.5 if scheme in GIVEN else 1.0)
        decode(kernels, scheme, out, 0, 2.5)

    @pytest.mark.parametrize("scheme", [QSGD2, QSGD4, QSGD8], ids=lambda scheme: scheme.name)
    def test_qsgd_measures_by_the_norm(self, kernels: Kernels, scheme: Scheme) -> None:
        values = np.concatenate([f32(3, 0, -4), np.zeros(509, np.float32), f32(-2)])
        out, decoded, _ = encode(kernels, scheme, values, key=5)
        assert head(out, scheme, 513) == [5.0, 2.0]
        assert decoded[512] == -2
        steps = np.abs(decoded[[0, 2]]) * np.float32(scheme.levels / 5)
        assert np.all(np.abs(steps - np.float32(scheme.levels) * f32(0.6, 0.8)) < 1)

    @pytest.mark.parametrize("scheme", STOCHASTIC, ids=lambda scheme: scheme.name)
    def test_the_mean_over_keys_is_the_value(self, kernels: Kernels, scheme: Scheme) -> None:
        """Within five standard deviations of the mean, which follow from the distance to the two levels."""
        values = np.random.default_rng(5).laplace(size=600).astype(np.float32)
        scale, keys = float(np.abs(values).max()), 400
        decoded = [encode(kernels, scheme, values, scale, key * 0x9E3779B97F4A7C15)[1] for key in range(keys)]
        units = np.full(600, scale)
        if scheme.scales:
            units = np.repeat(head(encode(kernels, scheme, values)[0], scheme, 600), scheme.block)[:600]
        part = np.abs(values) / units * scheme.levels % 1
        deviation = units / scheme.levels * np.sqrt(part * (1 - part) / keys)
        off = np.abs(np.mean(decoded, axis=0, dtype=np.float64) - values)
        assert np.all(
            off
            <= 5 * deviation + 1e-6 * units + 5 / keys * units / scheme.levels * (np.minimum(part, 1 - part) * keys < 5)
        )
        together = np.abs((np.mean(decoded, axis=0, dtype=np.float64) - values).sum())
        assert together <= 5 * np.sqrt(np.square(deviation).sum())
        variance = np.var(np.array(decoded, np.float64), axis=0).sum()
        assert variance == pytest.approx(np.square(deviation).sum() * keys, rel=0.05)

    @pytest.mark.parametrize("scheme", STOCHASTIC, ids=lambda scheme: scheme.name)
    def test_a_key_names_the_randomness(self, kernels: Kernels, scheme: Scheme) -> None:
        values = floats(1000, 6)
        payloads = {bytes(encode(kernels, scheme, values, 2.0, key)[0]) for key in (0, 1, 1 << 32, 1 << 63, 0)}
        assert len(payloads) == 4

    @examples
    @given(size=sizes, seed=seeds, scheme=st.sampled_from(SCHEMES))
    def test_nothing_is_written_beside_the_output(self, kernels: Kernels, size: int, seed: int, scheme: Scheme) -> None:
        values, (out, check_out) = floats(size, seed), guarded(scheme.size(size), np.uint8)
        said, check_said = guarded(size, np.float32)
        scale = kernels.quantize_encode(values, scheme, 1.5, seed, out, said)
        check_out()
        check_said()
        assert_same_bits(decode(kernels, scheme, out, size, scale), said)
        assert np.isfinite(said).all()

    @named
    def test_another_length_is_refused(self, kernels: Kernels, scheme: Scheme) -> None:
        for count in (0, 1, 700):
            payload = encode(kernels, scheme, np.ones(count, np.float32))[0]
            for damaged in (payload[:-1], np.append(payload, np.uint8(0)), payload[:0]):
                if len(damaged) != len(payload):
                    with pytest.raises(MessageError, match=f"^.*{scheme.name} values: {reasons.LENGTH}"):
                        decode(kernels, scheme, damaged, count)

    @named
    @pytest.mark.parametrize("scale", [-1.0, -0.0, np.inf, -np.inf, np.nan])
    def test_bad_scales_are_refused(self, kernels: Kernels, scheme: Scheme, scale: float) -> None:
        count = 2 * scheme.block + 3 if scheme.block else 700
        payload = encode(kernels, scheme, np.ones(count, np.float32))[0]
        if scheme in GIVEN:
            with pytest.raises(MessageError, match=reasons.LEVELS):
                decode(kernels, scheme, payload, count, scale)
        for at in range(scheme.scales * scheme.blocks(count)):
            damaged = payload.copy()
            damaged[4 * at : 4 * at + 4] = f32(scale).view(np.uint8)
            with pytest.raises(MessageError, match=reasons.LEVELS):
                decode(kernels, scheme, damaged, count)

    @pytest.mark.parametrize("table", [len(FOUR_TABLES), 255, 256, 2**31, 2**32 - 1])
    def test_an_unknown_table_is_refused(self, kernels: Kernels, table: int) -> None:
        payload = encode(kernels, FOUR4, np.ones(9, np.float32))[0]
        payload[4:8] = np.array([table], "<u4").view(np.uint8)
        with pytest.raises(MessageError, match=reasons.TABLE):
            decode(kernels, FOUR4, payload, 9)

    @pytest.mark.parametrize("count", [1, 9, 320, 321, 1000])
    def test_bytes_that_are_no_trits_are_refused(self, kernels: Kernels, count: int) -> None:
        payload = encode(kernels, TERNARY, np.ones(count, np.float32))[0]
        for at in {0, len(payload) // 2, len(payload) - 1}:
            damaged = payload.copy()
            damaged[at] = 243
            with pytest.raises(MessageError, match=reasons.DIGITS):
                decode(kernels, TERNARY, damaged, count)

    @pytest.mark.parametrize("scheme", [s for s in SCHEMES if s.per_byte > 1], ids=lambda scheme: scheme.name)
    def test_digits_without_a_value_are_refused(self, kernels: Kernels, scheme: Scheme) -> None:
        for count in (1, 2, 5, 9, 64 * scheme.per_byte + 1, 128 * scheme.per_byte - 1):
            payload = encode(kernels, scheme, np.zeros(count, np.float32))[0]
            chunk = (count - 1) // (64 * scheme.per_byte) * 64
            last = count - chunk * scheme.per_byte
            columns = -(-last // scheme.per_byte)
            for place in range(last, columns * scheme.per_byte):
                damaged = payload.copy()
                damaged[scheme.head_bytes(count) + chunk + place % columns] = scheme.base ** (place // columns)
                with pytest.raises(MessageError, match=reasons.PADDING):
                    decode(kernels, scheme, damaged, count)
