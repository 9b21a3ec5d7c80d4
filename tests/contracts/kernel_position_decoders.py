"""What the decoders of positions must do with payloads that no encoder made; ``kernel_decoders.py`` has what all codes share."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from sparse_ring.errors import MessageError
from sparse_ring.kernels import reasons
from sparse_ring.kernels.base import Indices, Kernels
from tests.contracts.kernel_decoders import decode, encode


def u32(*values: int) -> Indices:
    return np.array(values, dtype=np.uint32)


class PositionDecoderContract:
    """Hostile payloads; a subclass runs under a module-scoped fixture ``kernels``."""

    def test_bitmap_by_hand(self, kernels: Kernels) -> None:
        payload = encode(kernels, "bitmap", u32(0, 2, 9), 11)
        assert payload == bytes([0b101, 0b10])
        assert decode(kernels, "bitmap", payload, 3, 11).tolist() == [0, 2, 9]

    @pytest.mark.parametrize("count", [1, 2, 4, 100])
    def test_bitmap_has_as_many_bits_as_the_frame_says(self, kernels: Kernels, count: int) -> None:
        with pytest.raises(MessageError, match=reasons.COUNT):
            decode(kernels, "bitmap", bytes([0b101, 0b10]), count, 11)

    @pytest.mark.parametrize("bit", range(3, 8))
    def test_bitmap_padding_must_be_zero(self, kernels: Kernels, bit: int) -> None:
        with pytest.raises(MessageError, match=reasons.PADDING):
            decode(kernels, "bitmap", bytes([0b11, 1 << bit]), 3, 11)

    def test_bitmap_of_everything_fills_the_output_exactly(self, kernels: Kernels) -> None:
        for numel in (1, 15, 16, 17, 63, 64, 65, 1000):
            payload = encode(kernels, "bitmap", np.arange(numel, dtype=np.uint32), numel)
            assert decode(kernels, "bitmap", payload, numel, numel).tolist() == list(range(numel))

    def test_elias_fano_by_hand(self, kernels: Kernels) -> None:
        # numel // count = 5: two low bits 01, 11, 10; high parts 0, 0, 3: ones at 0, 1 and 5.
        payload = encode(kernels, "elias_fano", u32(1, 3, 14), 17)
        assert payload == bytes([2, 0b10_11_01, 0b100011])
        assert decode(kernels, "elias_fano", payload, 3, 17).tolist() == [1, 3, 14]

    @pytest.mark.parametrize("width", [32, 33, 255])
    def test_elias_fano_width_is_at_most_31(self, kernels: Kernels, width: int) -> None:
        with pytest.raises(MessageError, match=reasons.WIDTH):
            decode(kernels, "elias_fano", bytes([width]) + bytes(200) + b"\x7f", 3, 2**32 - 1)

    @pytest.mark.parametrize(
        ("payload", "reason"),
        [
            (b"", reasons.HEADER),
            (bytes([2]), reasons.TRUNCATED),
            (bytes([2, 0b10_11_01]), reasons.TRUNCATED),
            (bytes([2, 0b10_11_01, 0b11]), reasons.TRUNCATED),
            (bytes([2, 0b10_11_01, 0b11, 0, 0, 0]), reasons.TRUNCATED),
            (bytes([2, 0b01_10_11_01, 0b100011]), reasons.PADDING),
            (bytes([2, 0b10_11_01, 0b1100011]), reasons.PADDING),
            (bytes([2, 0b10_11_01, 0b100011, 0]), reasons.TRAILING),
            (bytes([2, 0b10_11_01, 0b100011, 1]), reasons.TRAILING),
            (bytes([2, 0b10_01_01, 0b100011]), reasons.ORDER),
            (bytes([2, 0b10_00_01, 0b100011]), reasons.ORDER),
            (bytes([2, 0b01_11_01, 0b1000011]), reasons.INDEX),
            (bytes([2, 0b10_11_01, 0b11, 0b1]), reasons.INDEX),
        ],
    )
    def test_elias_fano_damage_is_named(self, kernels: Kernels, payload: bytes, reason: str) -> None:
        with pytest.raises(MessageError, match=reason):
            decode(kernels, "elias_fano", payload, 3, 17)

    def test_elias_fano_high_bits_do_not_wrap(self, kernels: Kernels) -> None:
        # The one at position 2 with 31 low bits stands for 2^32, which is 0 in 32 bits.
        with pytest.raises(MessageError, match=reasons.INDEX):
            decode(kernels, "elias_fano", bytes([31]) + bytes(4) + bytes([0b100]), 1, 2**32 - 1)

    def test_elias_fano_of_no_positions_at_all(self, kernels: Kernels) -> None:
        with pytest.raises(MessageError, match=reasons.INDEX):
            decode(kernels, "elias_fano", bytes([0, 1]), 1, 0)

    def test_block16_by_hand(self, kernels: Kernels) -> None:
        payload = encode(kernels, "block16", u32(5, 70_000, 70_001), 100_000)
        assert payload == struct.pack("<IHHHHHHH", 2, 0, 0, 1, 1, 5, 4464, 4465)
        assert decode(kernels, "block16", payload, 3, 100_000).tolist() == [5, 70_000, 70_001]

    def test_block16_holds_whole_blocks(self, kernels: Kernels) -> None:
        indices = np.concatenate([np.arange(65_536), [65_536 + 3], np.arange(131_072, 196_608)]).astype(np.uint32)
        payload = encode(kernels, "block16", indices, 196_608)
        assert struct.unpack_from("<IHHHHHH", payload) == (3, 0, 65_535, 1, 0, 2, 65_535)
        assert np.array_equal(decode(kernels, "block16", payload, len(indices), 196_608), indices)

    @pytest.mark.parametrize(
        ("fields", "reason"),
        [
            ((2, 0, 0, 0, 1, 5, 4464, 4465), reasons.DIRECTORY),
            ((2, 1, 0, 0, 1, 5, 4464, 4465), reasons.DIRECTORY),
            ((2, 0, 0, 1, 2, 5, 4464, 4465), reasons.DIRECTORY),
            ((2, 0, 0, 1, 0, 5, 4464, 4465), reasons.DIRECTORY),
            ((2, 0, 65_535, 1, 1, 5, 4464, 4465), reasons.DIRECTORY),
            ((2, 0, 0, 1, 1, 5, 4465, 4465), reasons.ORDER),
            ((2, 0, 0, 1, 1, 5, 4464, 34_464), reasons.INDEX),
            ((2, 0, 0, 2, 1, 5, 4464, 4465), reasons.INDEX),
            ((3, 0, 0, 1, 1, 5, 4464, 4465), reasons.TRUNCATED),
            ((1, 0, 0, 1, 1, 5, 4464, 4465), reasons.TRAILING),
            ((2**32 - 1, 0, 0, 1, 1, 5, 4464, 4465), reasons.HEADER),
        ],
    )
    def test_block16_damage_is_named(self, kernels: Kernels, fields: tuple[int, ...], reason: str) -> None:
        with pytest.raises(MessageError, match=reason):
            decode(kernels, "block16", struct.pack("<IHHHHHHH", *fields), 3, 100_000)

    @pytest.mark.parametrize("size", range(4))
    def test_block16_needs_its_header(self, kernels: Kernels, size: int) -> None:
        with pytest.raises(MessageError, match=reasons.HEADER):
            decode(kernels, "block16", bytes(size), 3, 100_000)
