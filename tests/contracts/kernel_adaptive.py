"""The Golomb code whose parameter follows the gaps: bits worked out by hand, what it gains, and payloads no encoder made."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from sparse_ring.errors import MessageError
from sparse_ring.kernels import reasons
from sparse_ring.kernels.base import Indices, Kernels
from tests.contracts.kernel_decoders import COUNT, NUMEL, decode, encode, support

CODE = "golomb_adaptive"


def u32(*values: int) -> Indices:
    return np.array(values, dtype=np.uint32)


class AdaptiveContract:
    """A subclass runs under a module-scoped fixture ``kernels``."""

    def test_by_hand(self, kernels: Kernels) -> None:
        # The gaps sum to at most 5, so s = 53 and M = 1: gaps 0, 1, 2 are 1, 01, 001.
        payload = encode(kernels, CODE, u32(0, 2, 5), 8)
        assert payload == bytes([0b100101])
        assert decode(kernels, CODE, payload, 3, 8).tolist() == [0, 2, 5]

    def test_raw_gap_and_second_group_by_hand(self, kernels: Kernels) -> None:
        # s = 991 * 32 // 9 = 3523: M = 76, so a gap of 0 is a one and 6 zeros. After eight of them s = 2643 and M = 57,
        # whose twelvefold 684 is less than 700: 12 zeros, and 700 in the 10 bits of 1000.
        indices = u32(*range(8), 708)
        payload = encode(kernels, CODE, indices, 1000)
        assert payload == (sum(1 << 7 * i for i in range(8)) | 700 << 68).to_bytes(10, "little")
        assert decode(kernels, CODE, payload, 9, 1000).tolist() == indices.tolist()

    @pytest.mark.parametrize("gap", [683, 684])
    def test_quotients_around_the_limit(self, kernels: Kernels, gap: int) -> None:
        indices = u32(*range(8), 8 + gap)
        payload = encode(kernels, CODE, indices, 1000)
        # M = 57 has 5 bits, and 7 remainders without a sixth: 683 = 11 * 57 + 56 is 11 zeros, a one and 6 bits.
        expected = 1 << 11 | ((56 + 7) >> 1 | 1 << 5) << 12 if gap == 683 else 684 << 12
        assert int.from_bytes(payload, "little") >> 56 == expected
        assert decode(kernels, CODE, payload, 9, 1000).tolist() == indices.tolist()

    def test_the_parameter_follows_the_gaps(self, kernels: Kernels) -> None:
        """A tenth of the rows holds nearly everything: fewer bits than any one parameter takes."""
        rng = np.random.default_rng(3)
        density = np.where(rng.random(1000) < 0.1, 0.2, 0.002)
        indices = np.flatnonzero(rng.random((1000, 500)) < density[:, np.newaxis]).astype(np.uint32)
        assert len(encode(kernels, CODE, indices, 500_000)) < 0.75 * len(encode(kernels, "golomb", indices, 500_000))

    def test_evenly_spread_positions_cost_little_more(self, kernels: Kernels) -> None:
        assert len(encode(kernels, CODE, support())) < 1.01 * len(encode(kernels, "golomb", support()))

    @pytest.mark.parametrize("numel", [2**31 + 5, 2**32 - 1])
    def test_the_largest_gaps(self, kernels: Kernels, numel: int) -> None:
        for indices in (u32(numel - 1), u32(0, numel - 1), u32(*range(40), numel - 1), u32(*range(numel - 9, numel))):
            payload = encode(kernels, CODE, indices, numel)
            assert decode(kernels, CODE, payload, len(indices), numel).tolist() == indices.tolist()

    def test_every_index_below_numel(self, kernels: Kernels) -> None:
        # M = 1 for no gaps at all: a bit an index. The last of three zero gaps becomes one of 1, which leaves numel.
        assert encode(kernels, CODE, u32(0, 1, 2), 3) == bytes([0b111])
        with pytest.raises(MessageError, match=reasons.INDEX):
            decode(kernels, CODE, bytes([0b1011]), 3, 3)

    @pytest.mark.parametrize("count", [4, 5000])
    def test_more_indices_than_elements_are_refused(self, kernels: Kernels, count: int) -> None:
        with pytest.raises(MessageError):
            decode(kernels, CODE, struct.pack("<II", 4, 4095) + b"\xff" * 700, count, 3)

    def test_a_raw_gap_past_numel_is_refused(self, kernels: Kernels) -> None:
        with pytest.raises(MessageError, match=reasons.INDEX):
            decode(kernels, CODE, (1023 << 12).to_bytes(3, "little"), 1, 1000)

    def test_the_directory_needs_its_bytes(self, kernels: Kernels) -> None:
        with pytest.raises(MessageError, match=reasons.HEADER):
            decode(kernels, CODE, encode(kernels, CODE, support())[: 8 * 4 - 1])

    @pytest.mark.parametrize("block", range(4))
    @pytest.mark.parametrize("change", [-(2**31), -5000, -1, 1, 2**31])
    def test_directory_is_checked(self, kernels: Kernels, block: int, change: int) -> None:
        payload = encode(kernels, CODE, support())
        for offset in (8 * block, 8 * block + 4):
            damaged = payload.copy()
            (entry,) = struct.unpack_from("<I", payload, offset)
            struct.pack_into("<I", damaged, offset, (entry + change) % 2**32)
            with pytest.raises(MessageError):
                decode(kernels, CODE, damaged)

    def test_a_directory_without_room_for_its_blocks_is_refused(self, kernels: Kernels) -> None:
        payload = encode(kernels, CODE, support())
        struct.pack_into("<I", payload, 4, 4094)
        with pytest.raises(MessageError, match=reasons.DIRECTORY):
            decode(kernels, CODE, payload)

    @pytest.mark.parametrize("bit", [0x40, 0x80])
    def test_padding_must_be_zero(self, kernels: Kernels, bit: int) -> None:
        with pytest.raises(MessageError, match=reasons.PADDING):
            decode(kernels, CODE, bytes([0b100101 | bit]), 3, 8)

    @pytest.mark.parametrize("byte", [0x00, 0x01, 0x80, 0xFF])
    def test_the_same_byte_again_and_again_stays_in_bounds(self, kernels: Kernels, byte: int) -> None:
        for size in (1, 40, 9000, 1 << 17):
            with pytest.raises(MessageError):
                decode(kernels, CODE, bytes([byte]) * size, COUNT, NUMEL)
