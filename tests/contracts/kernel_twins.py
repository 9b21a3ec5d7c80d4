"""Native kernels against the reference: the same bits for the same input, and the same verdict on damaged payloads."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sparse_ring.encode import VALUE_CODES, Coding, ValueCode
from sparse_ring.errors import MessageError
from sparse_ring.kernels.base import Floats, Indices, Kernels, levels_size
from sparse_ring.kernels.quantize import SCHEMES, Scheme
from sparse_ring.kernels.reference.kernels import ReferenceKernels
from tests.contracts.kernel_cases import (
    BOUNDS,
    assert_same_bits,
    coded_supports,
    examples,
    floats,
    outputs,
    seeds,
    sizes,
    supports,
)

REFERENCE = ReferenceKernels()
numbers = st.sampled_from([0.0, 0.1, 0.9, 1.0, -0.5, 1e-3, 3e30])


class TwinContract:
    """A subclass runs under a module-scoped fixture ``native``."""

    @examples
    @given(
        size=sizes, seed=seeds, momentum=numbers, form=st.sampled_from(["plain", "momentum", "nesterov"]),
        threshold=st.sampled_from([1e-45, 1e-3, 2.0, 1e30]), room=st.sampled_from([0.0, 0.1, 1.0]),
    )  # fmt: skip
    def test_accumulate_select(
        self, native: Kernels, size: int, seed: int, momentum: float, form: str, threshold: float, room: float
    ) -> None:
        results: list[list[Any]] = []
        for kernels in (native, REFERENCE):
            g, u, r = floats(size, seed), floats(size, seed ^ 1), floats(size, seed ^ 2)
            velocity = None if form == "plain" else u
            capacity = int(room * size)
            indices, values = outputs(capacity)
            count = kernels.accumulate_select(g, velocity, r, momentum, form == "nesterov", threshold, indices, values)
            written = min(count, capacity)
            results.append([np.array(count), indices[:written], values[:written], u, r])
        for actual, expected in zip(*results, strict=True):
            assert_same_bits(actual, expected)

    @examples
    @given(size=sizes, seed=seeds, momentum=numbers, nesterov=st.booleans(), velocity=st.booleans())
    def test_accumulate(
        self, native: Kernels, size: int, seed: int, momentum: float, nesterov: bool, velocity: bool
    ) -> None:
        results = []
        for kernels in (native, REFERENCE):
            g, u, r = floats(size, seed), floats(size, seed ^ 1), floats(size, seed ^ 2)
            kernels.accumulate(g, u if velocity else None, r, momentum, nesterov)
            results.append(np.concatenate([u, r]))
        assert_same_bits(*results)

    @examples
    @given(size=sizes.filter(bool), seed=seeds, place=st.floats(0, 1))
    def test_reductions(self, native: Kernels, size: int, seed: int, place: float) -> None:
        x = floats(size, seed)
        k = 1 + int(place * (size - 1))
        for kernel, arguments in [("kth_magnitude", (x, k, x.copy())), ("sum_magnitudes", (x,)), ("all_finite", (x,))]:
            assert getattr(native, kernel)(*arguments) == getattr(REFERENCE, kernel)(*arguments)

    @examples
    @given(support=supports(), seed=seeds, scale=numbers)
    def test_updates(self, native: Kernels, support: tuple[Indices, int], seed: int, scale: float) -> None:
        indices = support[0][support[0] < 1 << 16]
        numel = min(support[1], 1 << 16)
        values, decoded = floats(len(indices), seed), floats(len(indices), seed ^ 1)
        results = []
        for kernels in (native, REFERENCE):
            r, u, out = floats(numel, seed ^ 2), floats(numel, seed ^ 3), floats(numel, seed ^ 4)
            kernels.update_residual(r, u, indices, values, decoded)
            kernels.scatter_add(out, indices, values, scale)
            kernels.add_scaled(out, u, scale)
            results.append(np.concatenate([r, u, out]))
        assert_same_bits(*results)

    @examples
    @given(size=sizes, seed=seeds, code=st.sampled_from(list(VALUE_CODES.values())))
    def test_value_codes(self, native: Kernels, size: int, seed: int, code: ValueCode) -> None:
        results: list[list[Any]] = []
        for kernels in (native, REFERENCE):
            values, said, out = floats(size, seed), np.zeros(size, np.float32), np.zeros(code.size(size), np.uint8)
            scale = code.given(Coding(seed=seed, scale=1.5)).encode(values, out, said, kernels)
            results.append([np.array(scale), out, said])
        for actual, expected in zip(*results, strict=True):
            assert_same_bits(actual, expected)

    @examples
    @given(size=st.integers(0, 200), seed=seeds, bits=st.sampled_from([2, 3, 4, 8]), scale=numbers)
    def test_levels_of_any_bytes(self, native: Kernels, size: int, seed: int, bits: int, scale: float) -> None:
        payload = np.random.default_rng(seed).integers(0, 256, levels_size(size, bits), dtype=np.uint8)
        results: list[Floats | None] = []
        for kernels in (native, REFERENCE):
            values = np.zeros(size, np.float32)
            try:
                kernels.levels_decode(payload, bits, scale, values)
                results.append(values)
            except MessageError:
                results.append(None)
        actual, expected = results
        assert (actual is None) == (expected is None)
        if actual is not None and expected is not None:
            assert_same_bits(actual, expected)

    @examples
    @given(
        size=sizes, seed=seeds, scheme=st.sampled_from(SCHEMES), scale=st.sampled_from([0.0, 1e-45, 0.3, 2.0, 3e38]),
        key=st.integers(0, 2**64 - 1),
    )  # fmt: skip
    def test_quantize(self, native: Kernels, size: int, seed: int, scheme: Scheme, scale: float, key: int) -> None:
        results: list[list[Any]] = []
        for kernels in (native, REFERENCE):
            values, said, out = floats(size, seed), np.zeros(size, np.float32), np.zeros(scheme.size(size), np.uint8)
            returned = kernels.quantize_encode(values, scheme, scale, key, out, said)
            results.append([np.array(returned), out, said])
        for actual, expected in zip(*results, strict=True):
            assert_same_bits(actual, expected)

    @examples
    @given(size=sizes, seed=seeds, scheme=st.sampled_from(SCHEMES), scale=numbers)
    def test_quantized_digits_of_any_bytes(
        self, native: Kernels, size: int, seed: int, scheme: Scheme, scale: float
    ) -> None:
        """Random digits behind good scales: values and refusals are the same."""
        rng = np.random.default_rng(seed)
        payload = rng.integers(0, 243 if scheme.base == 3 else 256, scheme.size(size), dtype=np.uint8)
        scales = 4 * scheme.scales * scheme.blocks(size)
        payload[:scales] = np.abs(floats(scales // 4, seed)).astype("<f4").view(np.uint8)
        if scheme.words and size:
            payload[scales : scales + 4] = np.array([seed % 4], "<u4").view(np.uint8)
        results: list[Floats | None] = []
        for kernels in (native, REFERENCE):
            values = np.zeros(size, np.float32)
            try:
                kernels.quantize_decode(payload, scheme, scale, values)
                results.append(values)
            except MessageError:
                results.append(None)
        actual, expected = results
        assert (actual is None) == (expected is None)
        if actual is not None and expected is not None:
            assert_same_bits(actual, expected)

    def test_every_half_and_its_neighbourhood(self, native: Kernels) -> None:
        halves = np.arange(1 << 16, dtype=np.uint16)
        finite = halves[(halves & 0x7C00) != 0x7C00]
        for scale in (1.0, 2.0**-126, -3.7):
            values, expected = np.zeros(len(finite), np.float32), np.zeros(len(finite), np.float32)
            native.float16_decode(finite, scale, values)
            REFERENCE.float16_decode(finite, scale, expected)
            assert_same_bits(values, expected)
        below_two = finite[(finite & 0x7FFF) < 0x4000].view(np.float16).astype(np.float32)
        ulp = np.abs(np.spacing(below_two.astype(np.float16)).astype(np.float32))
        for offset in (0.25, 0.5, 0.5000001, 0.75):
            values = np.append(below_two + np.float32(offset) * ulp, np.float32(1.9375))
            results = []
            for kernels in (native, REFERENCE):
                out, decoded = np.zeros(len(values), np.uint16), np.zeros(len(values), np.float32)
                kernels.float16_encode(values, out, decoded)
                results.append(out)
            assert_same_bits(*results)

    @examples
    @given(seed=seeds)
    def test_bfloat16_of_any_bits(self, native: Kernels, seed: int) -> None:
        x = np.random.default_rng(seed).integers(0, 2**32, 1000, dtype=np.uint32).view(np.float32)
        halves, expected = np.zeros(1000, np.uint16), np.zeros(1000, np.uint16)
        native.float32_to_bfloat16(x, halves)
        REFERENCE.float32_to_bfloat16(x, expected)
        assert_same_bits(halves, expected)
        widened, expected_widened = np.zeros(1000, np.float32), np.zeros(1000, np.float32)
        native.bfloat16_to_float32(halves, widened)
        REFERENCE.bfloat16_to_float32(halves, expected_widened)
        assert_same_bits(widened.view(np.uint32), expected_widened.view(np.uint32))

    @examples
    @given(seed=seeds)
    def test_halves_of_any_bits(self, native: Kernels, seed: int) -> None:
        rng = np.random.default_rng(seed)
        x = rng.integers(0, 2**32, 1000, dtype=np.uint32).view(np.float32)
        x[::2] = rng.standard_normal(500) * 10.0 ** rng.uniform(-9, 6, 500)
        halves, expected = np.zeros(1000, np.uint16), np.zeros(1000, np.uint16)
        native.float32_to_float16(x, halves)
        REFERENCE.float32_to_float16(x, expected)
        assert_same_bits(halves, expected)
        every = np.arange(1 << 16, dtype=np.uint16)
        widened, expected_widened = np.zeros(1 << 16, np.float32), np.zeros(1 << 16, np.float32)
        native.float16_to_float32(every, widened)
        REFERENCE.float16_to_float32(every, expected_widened)
        assert_same_bits(widened.view(np.uint32), expected_widened.view(np.uint32))

    @examples
    @given(case=coded_supports, seed=seeds)
    def test_index_codes_and_damage(self, native: Kernels, case: tuple[str, tuple[Indices, int]], seed: int) -> None:
        code, (indices, numel) = case
        payloads = []
        for kernels in (native, REFERENCE):
            out = np.zeros(BOUNDS[code](len(indices), numel), np.uint8)
            payloads.append(out[: getattr(kernels, f"{code}_encode")(indices, numel, out)])
        assert_same_bits(*payloads)
        rng = np.random.default_rng(seed)
        for _ in range(4 * bool(len(payloads[0]))):
            damaged = payloads[0].copy()
            damaged[rng.integers(0, len(damaged), 2)] ^= (1 << rng.integers(0, 8, 2)).astype(np.uint8)
            assert verdict(native, code, damaged, numel, len(indices)) == verdict(
                REFERENCE, code, damaged, numel, len(indices)
            )


def verdict(kernels: Kernels, code: str, payload: Any, numel: int, count: int) -> list[int] | None:
    """What was decoded; None where the payload was refused."""
    indices = np.zeros(count, np.uint32)
    try:
        getattr(kernels, f"{code}_decode")(payload, numel, indices)
    except MessageError:
        return None
    return [int(index) for index in indices]
