"""The interpolative code: bits worked out by hand, what it gains, and payloads no encoder made."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparse_ring.errors import MessageError
from sparse_ring.kernels import reasons
from sparse_ring.kernels.base import Indices, Kernels
from tests.contracts.kernel_cases import examples
from tests.contracts.kernel_decoders import decode, encode, support

CODE = "interpolative"


def u32(*values: int) -> Indices:
    return np.array(values, dtype=np.uint32)


class InterpolativeContract:
    """A subclass runs under a module-scoped fixture ``kernels``."""

    def test_by_hand(self, kernels: Kernels) -> None:
        # x2 is one of 1 to 6: number 1 of 6, of which 2 and 3 take 2 bits; turned to (1 - 2) mod 6 = 5, so (5 + 2) / 2 = 3 and
        # a one. x1 below 2 is the first of two, x3 above it the third of five (3 to 7): y = 2 - 1, of 3 short ones: 1 in 2 bits.
        payload = encode(kernels, CODE, u32(0, 2, 5), 8)
        assert payload == bytes([0b111 | 0b0 << 3 | 0b01 << 4])
        assert decode(kernels, CODE, payload, 3, 8).tolist() == [0, 2, 5]

    @pytest.mark.parametrize("numel", [1, 7, 8, 9, 5000])
    def test_what_can_only_be_takes_no_bits(self, kernels: Kernels, numel: int) -> None:
        everything = np.arange(numel, dtype=np.uint32)
        assert encode(kernels, CODE, everything, numel) == b""
        assert decode(kernels, CODE, b"", numel, numel).tolist() == everything.tolist()

    def test_crowded_positions_take_fewer_bits(self, kernels: Kernels) -> None:
        """A tenth of the rows holds nearly everything."""
        rng = np.random.default_rng(3)
        density = np.where(rng.random(1000) < 0.1, 0.2, 0.002)
        indices = np.flatnonzero(rng.random((1000, 500)) < density[:, np.newaxis]).astype(np.uint32)
        assert len(encode(kernels, CODE, indices, 500_000)) < 0.7 * len(encode(kernels, "golomb", indices, 500_000))

    def test_evenly_spread_positions_cost_little_more(self, kernels: Kernels) -> None:
        assert len(encode(kernels, CODE, support())) < 1.07 * len(encode(kernels, "golomb", support()))

    @pytest.mark.parametrize("numel", [2**31 + 5, 2**32 - 1])
    def test_the_largest_numbers(self, kernels: Kernels, numel: int) -> None:
        for indices in (u32(numel - 1), u32(0, numel - 1), u32(*range(40), numel - 1), u32(*range(numel - 9, numel))):
            payload = encode(kernels, CODE, indices, numel)
            assert decode(kernels, CODE, payload, len(indices), numel).tolist() == indices.tolist()

    @examples
    @given(payload=st.binary(min_size=400, max_size=400), count=st.integers(1, 90), numel=st.integers(90, 2**32 - 1))
    def test_any_bits_are_increasing_indices_in_bounds(
        self, kernels: Kernels, payload: bytes, count: int, numel: int
    ) -> None:
        """Only their number can be wrong: 90 numbers of 32 bits take at most 360 of the 400 bytes."""
        with pytest.raises(MessageError, match=reasons.TRAILING):
            decode(kernels, CODE, payload, count, numel)
        for length in range(400):
            try:
                indices = decode(kernels, CODE, payload[:length], count, numel)
            except MessageError:
                continue
            assert np.all(np.diff(indices.astype(np.int64)) > 0)
            assert int(indices[-1]) < numel

    @pytest.mark.parametrize("count", [4, 5000])
    def test_more_indices_than_elements_are_refused(self, kernels: Kernels, count: int) -> None:
        with pytest.raises(MessageError, match=reasons.INDEX):
            decode(kernels, CODE, b"", count, 3)

    @pytest.mark.parametrize("bit", [0x40, 0x80])
    def test_padding_must_be_zero(self, kernels: Kernels, bit: int) -> None:
        with pytest.raises(MessageError, match=reasons.PADDING):
            decode(kernels, CODE, bytes([0b010111 | bit]), 3, 8)

    def test_zeros_behind_a_full_byte_are_refused(self, kernels: Kernels) -> None:
        payload = encode(kernels, CODE, u32(37), 256)
        assert len(payload) == 1
        with pytest.raises(MessageError, match=reasons.TRAILING):
            decode(kernels, CODE, payload + b"\0", 1, 256)
