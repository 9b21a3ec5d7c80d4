"""Selection by chunks: every implementation against sorting, and against the reference bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparse_ring.kernels.base import CHUNK, SPARE, Floats, Kernels, chunk_keep, chunks_keep
from sparse_ring.kernels.reference.kernels import ReferenceKernels
from tests.contracts.kernel_cases import assert_same_bits, examples, floats, guarded, outputs, seeds, sizes

keeps = st.one_of(st.sampled_from([1, 2, 40, 41, 4095, 4096]), st.integers(1, 4096))


def largest(x: Floats, keep: int) -> list[int]:
    """Positions by sorting, of equal magnitudes the first."""
    found = []
    for first in range(0, len(x), CHUNK):
        chunk = np.abs(x[first : first + CHUNK]).tolist()
        worth = [place for place, size in enumerate(chunk) if size >= 2.0**-126]
        worth.sort(key=lambda place: (-chunk[place], place))
        found += [first + place for place in sorted(worth[: chunk_keep(len(chunk), keep)])]
    return found


class ChunkContract:
    """A subclass runs under a module-scoped fixture ``kernels``."""

    @examples
    @given(size=sizes, seed=seeds, keep=keeps, kind=st.sampled_from(["any", "ties", "few", "falling"]))
    def test_select_chunks_finds_the_largest_of_each(
        self, kernels: Kernels, size: int, seed: int, keep: int, kind: str
    ) -> None:
        x = floats(size, seed)
        if kind == "ties":
            x = np.round(np.clip(x, -3, 3))
        if kind == "few":
            x[np.random.default_rng(seed).random(size) < 0.99] = 0
        if kind == "falling":
            # No chunk's border says anything of the next one's.
            x = (x * 10.0 ** -(10.0 * (np.arange(size) // CHUNK))).astype(np.float32)
        most = chunks_keep(size, keep)
        indices, check_indices = guarded(most + SPARE, np.uint32)
        values, check_values = guarded(most + SPARE, np.float32)
        count = kernels.select_chunks(x, keep, indices, values)
        expected = largest(x, keep)
        assert count == len(expected) <= most
        assert indices[:count].tolist() == expected
        assert_same_bits(values[:count], x[expected])
        check_indices()
        check_values()

    def test_select_chunks_takes_infinity_and_never_nan(self, kernels: Kernels) -> None:
        x = np.full(CHUNK + 3, np.nan, np.float32)
        x[[5, 9, 11, CHUNK]] = [1, -np.inf, 2, -3]
        indices, values = outputs(chunks_keep(len(x), 2))
        count = kernels.select_chunks(x, 2, indices, values)
        assert indices[:count].tolist() == [9, 11, CHUNK]
        assert values[:count].tolist() == [-np.inf, 2, -3]

    def test_the_smallest_normal_number_is_kept_and_the_one_below_it_never(self, kernels: Kernels) -> None:
        x = np.zeros(50, np.float32)
        x[[3, 4, 5]] = 2.0**-126, np.nextafter(np.float32(2.0**-126), np.float32(0)), -(2.0**-126)
        indices, values = outputs(chunks_keep(50, CHUNK))
        assert kernels.select_chunks(x, CHUNK, indices, values) == 2
        assert indices[:2].tolist() == [3, 5]

    @pytest.mark.parametrize("keep", [1, 3, 700, 4090])
    def test_of_equal_magnitudes_the_first_are_kept(self, kernels: Kernels, keep: int) -> None:
        """All but a few are equal, so that the border runs through all of the chunk."""
        x = np.where(np.arange(CHUNK + 500) % 3, np.float32(1), np.float32(-1))
        x[[70, 900, 4095, 4096]] = [2, -3, 4, 0]
        indices, values = outputs(chunks_keep(len(x), keep))
        count = kernels.select_chunks(x, keep, indices, values)
        assert indices[:count].tolist() == largest(x, keep)
        assert_same_bits(values[:count], x[indices[:count]])

    def test_a_shorter_last_chunk_keeps_in_proportion(self, kernels: Kernels) -> None:
        x = np.arange(1, 2 * CHUNK + 1025, dtype=np.float32)
        indices, values = outputs(chunks_keep(len(x), 40))
        assert kernels.select_chunks(x, 40, indices, values) == 40 + 40 + 10
        x = x[: CHUNK + 3]
        assert kernels.select_chunks(x, 40, indices, values) == 41
        assert int(indices[40]) == CHUNK + 2


class ChunkTwinContract:
    """A subclass runs under a module-scoped fixture ``native``."""

    @examples
    @given(seed=seeds, keep=keeps, offset=st.integers(0, 9))
    def test_select_chunks(self, native: Kernels, seed: int, keep: int, offset: int) -> None:
        x = np.random.default_rng(seed).integers(0, 2**32, 3 * CHUNK + 200, dtype=np.uint32).view(np.float32)[offset:]
        results = []
        for kernels in (native, ReferenceKernels()):
            indices, values = outputs(chunks_keep(len(x), keep))
            count = kernels.select_chunks(x, keep, indices, values)
            results.append(np.concatenate([indices[:count], values[:count].view(np.uint32)]))
        assert_same_bits(*results)

    @pytest.mark.parametrize(
        ("keep", "room", "text"), [(0, 99, "keep is 0"), (4097, 99, "keep is 4097"), (9, 8, "room for 8 .* for 9")]
    )
    def test_select_chunks_refuses_what_does_not_fit(self, native: Kernels, keep: int, room: int, text: str) -> None:
        with pytest.raises(ValueError, match=text):
            native.select_chunks(np.ones(4096, np.float32), keep, *outputs(room))
