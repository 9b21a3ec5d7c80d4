"""What every decoder must do with payloads that no encoder made: a reason, and nothing written outside the output."""

from __future__ import annotations

import struct
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparse_ring.errors import MessageError
from sparse_ring.kernels import reasons
from sparse_ring.kernels.base import Bytes, Indices, Kernels, levels_size
from tests.contracts.kernel_cases import BOUNDS, INDEX_CODES, coded_supports, examples, guarded, seeds

NUMEL = 1_000_003
COUNT = 17_000  # four full blocks that are decoded together, and a short one


def support(count: int = COUNT) -> Indices:
    return np.sort(np.random.default_rng(7).choice(NUMEL, count, replace=False)).astype(np.uint32)


def encode(kernels: Kernels, code: str, indices: Indices, numel: int = NUMEL) -> bytearray:
    out = np.zeros(BOUNDS[code](len(indices), numel), dtype=np.uint8)
    return bytearray(out[: getattr(kernels, f"{code}_encode")(indices, numel, out)])


@cache
def _encoded_support(kernels: Kernels, code: str, count: int) -> bytes:
    return bytes(encode(kernels, code, support(count)))


def honest(kernels: Kernels, code: str, count: int = COUNT) -> bytearray:
    """What the encoder makes of ``support(count)``."""
    return bytearray(_encoded_support(kernels, code, count))


def decode(kernels: Kernels, code: str, payload: bytes | bytearray, count: int = COUNT, numel: int = NUMEL) -> Indices:
    """Decode; whatever happens, the elements around the output stay as they were."""
    indices, check = guarded(count, np.uint32)
    try:
        getattr(kernels, f"{code}_decode")(np.frombuffer(bytes(payload), dtype=np.uint8), numel, indices)
    finally:
        check()
    return indices


def decode_or_refuse(kernels: Kernels, code: str, payload: bytes | bytearray, count: int, numel: int) -> None:
    """Accept MessageError, or else strictly increasing indices in bounds."""
    try:
        indices = decode(kernels, code, payload, count, numel)
    except MessageError:
        return
    assert np.all(np.diff(indices.astype(np.int64)) > 0)
    assert indices.size == 0 or int(indices[-1]) < numel


def golomb_payload(gaps: list[int], indices: list[int], modulus: int) -> bytes:
    """The code of the specification, written out bit by bit."""
    width = modulus.bit_length() - 1
    cut = 2 ** (width + 1) - modulus
    blocks, directory = [], b""
    for start in range(0, len(gaps), 4096):
        bits = ""
        for gap in gaps[start : start + 4096]:
            remainder = gap % modulus
            longer = remainder >= cut
            head = (remainder + cut) >> 1 if longer else remainder
            bits += "0" * (gap // modulus) + "1" + (f"{head:0{width}b}"[::-1] if width else "")
            bits += str((remainder + cut) & 1) if longer else ""
        blocks.append(int(bits[::-1], 2).to_bytes((len(bits) + 7) // 8, "little"))
    for number, block in enumerate(blocks[:-1]):
        directory += struct.pack("<II", len(block), indices[4096 * number + 4095])
    return struct.pack("<I", modulus) + directory + b"".join(blocks)


class DecoderContract:
    """Hostile payloads; a subclass runs under a module-scoped fixture ``kernels``."""

    @pytest.mark.parametrize("code", INDEX_CODES)
    @pytest.mark.parametrize("count", [1, 5, 128, 4096, 4097, COUNT])
    def test_every_truncation_is_refused(self, kernels: Kernels, code: str, count: int) -> None:
        payload = honest(kernels, code, count)
        for length in {0, 1, 3, 4, 5, 11, 12, len(payload) // 2, *range(len(payload) - 9, len(payload))}:
            if 0 <= length < len(payload):
                with pytest.raises(MessageError):
                    decode(kernels, code, payload[:length], count)

    @pytest.mark.parametrize("code", INDEX_CODES)
    @pytest.mark.parametrize("count", [0, 1, 128, 4096, COUNT])
    @pytest.mark.parametrize("extra", [b"\0", b"\1", b"\0" * 40])
    def test_bytes_past_the_end_are_refused(self, kernels: Kernels, code: str, count: int, extra: bytes) -> None:
        with pytest.raises(MessageError, match=reasons.TRAILING):
            decode(kernels, code, honest(kernels, code, count) + extra, count)

    @pytest.mark.parametrize("code", ["golomb", "bitpack", "elias_fano", "block16"])
    @pytest.mark.parametrize("count", [1, 128, COUNT])
    def test_an_index_past_numel_is_refused(self, kernels: Kernels, code: str, count: int) -> None:
        indices = support(count)
        payload = encode(kernels, code, indices)
        assert decode(kernels, code, payload, count, int(indices[-1]) + 1).tolist() == indices.tolist()
        with pytest.raises(MessageError, match=reasons.INDEX):
            decode(kernels, code, payload, count, int(indices[-1]))

    def test_golomb_header_is_checked(self, kernels: Kernels) -> None:
        payload = honest(kernels, "golomb")
        with pytest.raises(MessageError, match=reasons.HEADER):
            decode(kernels, "golomb", payload[: 4 + 8 * 4 - 1])
        with pytest.raises(MessageError, match=reasons.MODULUS):
            decode(kernels, "golomb", bytes(4) + payload[4:])

    @pytest.mark.parametrize("modulus", [1, 2, 3, 2**31 - 1, 2**31, 2**32 - 1])
    def test_a_wrong_golomb_parameter_stays_in_bounds(self, kernels: Kernels, modulus: int) -> None:
        payload = honest(kernels, "golomb")
        with pytest.raises(MessageError):
            decode(kernels, "golomb", struct.pack("<I", modulus) + payload[4:])

    @pytest.mark.parametrize("block", range(4))
    @pytest.mark.parametrize("change", [-1, 1, 2**31])
    def test_golomb_directory_is_checked(self, kernels: Kernels, block: int, change: int) -> None:
        payload = honest(kernels, "golomb")
        for offset in (4 + 8 * block, 8 + 8 * block):
            damaged = payload.copy()
            (entry,) = struct.unpack_from("<I", payload, offset)
            struct.pack_into("<I", damaged, offset, (entry + change) % 2**32)
            with pytest.raises(MessageError):
                decode(kernels, "golomb", damaged)

    def test_a_last_index_that_the_block_denies_is_refused(self, kernels: Kernels) -> None:
        payload = honest(kernels, "golomb")
        last = 8 + 8 * 3
        struct.pack_into("<I", payload, last, struct.unpack_from("<I", payload, last)[0] - 1)
        with pytest.raises(MessageError, match=reasons.DIRECTORY):
            decode(kernels, "golomb", payload)

    def test_golomb_zeros_without_end_are_refused(self, kernels: Kernels) -> None:
        for modulus in (1, 2**32 - 1):
            for end in (b"", b"\x80" + bytes(8)):
                with pytest.raises(MessageError):
                    decode(kernels, "golomb", struct.pack("<I", modulus) + bytes(1 << 17) + end, 1)

    def test_golomb_quotient_longer_than_a_window_is_read(self, kernels: Kernels) -> None:
        gap, numel = 1000, 1001
        bits = (1 << gap).to_bytes(126, "little")
        assert decode(kernels, "golomb", struct.pack("<I", 1) + bits, 1, numel).tolist() == [gap]
        with pytest.raises(MessageError, match=reasons.INDEX):
            decode(kernels, "golomb", struct.pack("<I", 1) + bits, 1, numel - 1)

    @pytest.mark.parametrize("modulus", [1, 2, 3, 693, 2**20, 2**21 - 1, 2**29, 2**30 - 1, 2**30 + 1, 2**31, 2**32 - 1])
    @pytest.mark.parametrize("count", [1, 70, 4 * 4096 + 100])
    def test_any_golomb_parameter_is_read(self, kernels: Kernels, modulus: int, count: int) -> None:
        """Our encoder takes the best one, but a sender may take another."""
        rng = np.random.default_rng(modulus)
        gaps = np.where(rng.random(count) < 0.02, rng.integers(0, 200_000, count), rng.integers(0, 9, count))
        gaps[-1] = min(modulus + 1, 2**31) if count < 4096 else 0
        gaps = np.minimum(gaps, 90 * modulus)  # quotients are written in unary
        indices = np.cumsum(gaps + 1) - 1
        payload = golomb_payload(gaps.tolist(), indices.tolist(), modulus)
        assert decode(kernels, "golomb", payload, count, 2**32 - 1).tolist() == indices.tolist()

    @pytest.mark.parametrize("code", ["golomb", "bitpack"])
    def test_padding_must_be_zero(self, kernels: Kernels, code: str) -> None:
        # golomb: M = 1, gaps 0, 1, 2 in 6 bits; bitpack: one byte of width 2 with the same gaps in 6 bits.
        indices = np.array([0, 2, 5], dtype=np.uint32)
        payload = encode(kernels, code, indices, 8)
        for bit in (0x40, 0x80):
            damaged = payload.copy()
            damaged[-1] |= bit
            with pytest.raises(MessageError, match=reasons.PADDING):
                decode(kernels, code, damaged, 3, 8)

    def test_golomb_padding_of_inner_blocks_must_be_zero(self, kernels: Kernels) -> None:
        # 4096 gaps of 0 but the first: M = 1, so the first block takes 4097 bits and leaves 7 unused.
        indices = np.arange(1, 5000, dtype=np.uint32)
        payload = encode(kernels, "golomb", indices, 5000)
        payload[4 + 8 + 512] |= 0x80
        with pytest.raises(MessageError, match=reasons.PADDING):
            decode(kernels, "golomb", payload, 4999, 5000)

    @pytest.mark.parametrize("width", [33, 64, 255])
    def test_bitpack_width_is_at_most_32(self, kernels: Kernels, width: int) -> None:
        with pytest.raises(MessageError, match=reasons.WIDTH):
            decode(kernels, "bitpack", bytes([width]) + bytes(128 * 33), 128)

    def test_bitpack_gaps_do_not_wrap(self, kernels: Kernels) -> None:
        with pytest.raises(MessageError, match=reasons.INDEX):
            decode(kernels, "bitpack", bytes([32]) + b"\xff" * 512, 128, 2**32 - 1)

    @examples
    @given(code=st.sampled_from(INDEX_CODES), payload=st.binary(max_size=200), count=st.integers(0, 300))
    def test_random_bytes(self, kernels: Kernels, code: str, payload: bytes, count: int) -> None:
        decode_or_refuse(kernels, code, payload, count, 100_000)

    @examples
    @given(case=coded_supports, seed=seeds)
    def test_damaged_bytes(self, kernels: Kernels, case: tuple[str, tuple[Indices, int]], seed: int) -> None:
        code, (indices, numel) = case
        payload = encode(kernels, code, indices, numel)
        rng = np.random.default_rng(seed)
        for _ in range(4 * bool(payload)):
            damaged = payload.copy()
            for at in rng.integers(0, len(payload), 1 + int(rng.integers(3))):
                damaged[at] ^= 1 << int(rng.integers(8))
            decode_or_refuse(kernels, code, damaged, len(indices), numel)

    @pytest.mark.parametrize("scale", [np.nan, np.inf, -np.inf, 1e300])
    def test_scales_must_be_finite(self, kernels: Kernels, scale: float) -> None:
        values = np.zeros(9, np.float32)
        with pytest.raises(MessageError, match=reasons.NOT_FINITE):
            kernels.float16_decode(np.zeros(9, np.uint16), scale, values)
        with pytest.raises(MessageError, match=reasons.NOT_FINITE):
            kernels.sign_decode(np.zeros(2, np.uint8), scale, values)
        for bits in (2, 3, 4, 8):
            with pytest.raises(MessageError, match=reasons.LEVELS):
                kernels.levels_decode(np.zeros(levels_size(9, bits), np.uint8), bits, scale, values)
            with pytest.raises(MessageError, match=reasons.LEVELS):
                kernels.levels_decode(np.zeros(0, np.uint8), bits, scale, values[:0])

    @pytest.mark.parametrize("bits", [2, 3, 4, 8])
    @pytest.mark.parametrize(
        ("low", "scale"),
        [(np.nan, 1.0), (np.inf, 0.0), (-1.0, 1.0), (-0.0, 1.0), (1.0, -1e-9), (3e38, 3e38), (0.0, 3.4e38)],
    )
    def test_levels_must_be_finite_and_positive(self, kernels: Kernels, bits: int, low: float, scale: float) -> None:
        payload = np.zeros(levels_size(9, bits), np.uint8)
        payload[:4] = np.array([low], np.float32).view(np.uint8)
        if (bits, low, scale) == (8, 0.0, 3.4e38):
            kernels.levels_decode(payload, bits, scale, np.zeros(9, np.float32))
            return
        with pytest.raises(MessageError, match=reasons.LEVELS):
            kernels.levels_decode(payload, bits, scale, np.zeros(9, np.float32))

    @pytest.mark.parametrize("bits", [2, 3, 4])
    @pytest.mark.parametrize("count", [1, 9, 65, 129])
    def test_level_padding_must_be_zero(self, kernels: Kernels, bits: int, count: int) -> None:
        payload = np.zeros(levels_size(count, bits), np.uint8)
        for bit in range(count * bits % 8, 8):
            payload[-1] = 1 << bit
            with pytest.raises(MessageError, match=reasons.PADDING):
                kernels.levels_decode(payload, bits, 1.0, np.zeros(count, np.float32))

    @pytest.mark.parametrize("half", [0x7F80, 0xFF80, 0x7FC0, 0x7F81])
    @pytest.mark.parametrize("at", [0, 7, 31, 32])
    def test_bfloat16_values_must_be_finite(self, kernels: Kernels, half: int, at: int) -> None:
        payload: np.ndarray = np.zeros(33, np.uint16)
        payload[at] = half
        with pytest.raises(MessageError, match=reasons.NOT_FINITE):
            kernels.bfloat16_decode(payload, np.zeros(33, np.float32))

    @pytest.mark.parametrize("half", [0x7C00, 0xFC00, 0x7E00, 0x7C01])
    @pytest.mark.parametrize("at", [0, 7, 8])
    def test_float16_values_must_be_finite(self, kernels: Kernels, half: int, at: int) -> None:
        payload: np.ndarray = np.zeros(9, np.uint16)
        payload[at] = half
        for scale in (1.0, 0.0):
            with pytest.raises(MessageError, match=reasons.NOT_FINITE):
                kernels.float16_decode(payload, scale, np.zeros(9, np.float32))

    def test_float16_products_must_be_finite(self, kernels: Kernels) -> None:
        with pytest.raises(MessageError, match=reasons.NOT_FINITE):
            kernels.float16_decode(np.full(9, 0x4000, np.uint16), 2.0**127, np.zeros(9, np.float32))

    @pytest.mark.parametrize("count", [1, 7, 9, 15])
    def test_sign_padding_must_be_zero(self, kernels: Kernels, count: int) -> None:
        payload: Bytes = np.zeros((count + 7) // 8, np.uint8)
        payload[-1] = 1 << count % 8
        with pytest.raises(MessageError, match=reasons.PADDING):
            kernels.sign_decode(payload, 1.0, np.zeros(count, np.float32))

    @pytest.mark.parametrize("size", [0, 1, 3])
    def test_value_payloads_must_have_the_right_length(self, kernels: Kernels, size: int) -> None:
        with pytest.raises(MessageError, match=reasons.LENGTH):
            kernels.sign_decode(np.zeros(size, np.uint8), 1.0, np.zeros(9, np.float32))
        with pytest.raises(MessageError, match=reasons.LENGTH):
            kernels.float16_decode(np.zeros(size, np.uint16), 1.0, np.zeros(9, np.float32))
        with pytest.raises(MessageError, match=reasons.LENGTH):
            kernels.bfloat16_decode(np.zeros(size, np.uint16), np.zeros(9, np.float32))
        with pytest.raises(MessageError, match=reasons.LENGTH):
            kernels.levels_decode(np.zeros(size, np.uint8), 2, 1.0, np.zeros(9, np.float32))
