"""The native index codes; see :mod:`sparse_ring.kernels.cpu.kernels`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from sparse_ring import _native
from sparse_ring.errors import MessageError
from sparse_ring.kernels import reasons
from sparse_ring.kernels.base import (
    Bytes,
    Indices,
    bitmap_bound,
    bitpack_bound,
    block16_bound,
    elias_fano_bound,
    golomb_bound,
    interpolative_bound,
)

MOST_ELEMENTS = 2**32 - 1


def need_numel(numel: int) -> None:
    """Raise ValueError where so many elements have no 32-bit indices."""
    if not 0 <= numel <= MOST_ELEMENTS:
        raise ValueError(f"numel is {numel}, but must be from 0 to {MOST_ELEMENTS}.")


def refuse_indices(numel: int) -> NoReturn:
    """Raise the ValueError for indices in a wrong order or out of bounds."""
    raise ValueError(f"indices must be strictly increasing and below numel, which is {numel}.")


def _encoded(result: int, count: int, numel: int, size: int, bound: Callable[[int, int], int]) -> int:
    if result >= 0:
        return result
    if result == reasons.CAPACITY:
        raise ValueError(f"out has {size} bytes, but must have at least {bound(count, numel)}.")
    refuse_indices(numel)


def _decoded(status: int, code: str) -> None:
    if status:
        raise MessageError(f"{code}: {reasons.BY_CODE[status]}")


class CpuIndexCodes:
    """Encoders and decoders of indices in one table of native kernels."""

    _native: type[_native.Table]

    def golomb_encode(self, indices: Indices, numel: int, out: Bytes) -> int:
        """Encode indices; returns the bytes written."""
        need_numel(numel)
        n, size = len(indices), len(out)
        result = self._native.golomb_encode(n, indices, numel, size, out)
        return _encoded(result, n, numel, size, golomb_bound)

    def golomb_decode(self, payload: Bytes, numel: int, indices: Indices) -> None:
        """Decode indices, distrusting the payload."""
        need_numel(numel)
        status = self._native.golomb_decode(len(indices), payload, len(payload), numel, indices)
        _decoded(status, "Golomb-coded indices")

    def interpolative_encode(self, indices: Indices, numel: int, out: Bytes) -> int:
        """Encode indices; returns the bytes written."""
        need_numel(numel)
        n, size = len(indices), len(out)
        result = self._native.interpolative_encode(n, indices, numel, size, out)
        return _encoded(result, n, numel, size, interpolative_bound)

    def interpolative_decode(self, payload: Bytes, numel: int, indices: Indices) -> None:
        """Decode indices, distrusting the payload."""
        need_numel(numel)
        status = self._native.interpolative_decode(len(indices), payload, len(payload), numel, indices)
        _decoded(status, "interpolatively coded indices")

    def bitpack_encode(self, indices: Indices, numel: int, out: Bytes) -> int:
        """Encode indices; returns the bytes written."""
        need_numel(numel)
        n, size = len(indices), len(out)
        result = self._native.bitpack_encode(n, indices, numel, size, out)
        return _encoded(result, n, numel, size, lambda count, _: bitpack_bound(count))

    def bitpack_decode(self, payload: Bytes, numel: int, indices: Indices) -> None:
        """Decode indices, distrusting the payload."""
        need_numel(numel)
        status = self._native.bitpack_decode(len(indices), payload, len(payload), numel, indices)
        _decoded(status, "bit-packed indices")

    def bitmap_encode(self, indices: Indices, numel: int, out: Bytes) -> int:
        """Encode indices; returns the bytes written."""
        need_numel(numel)
        n, size = len(indices), len(out)
        result = self._native.bitmap_encode(n, indices, numel, size, out)
        return _encoded(result, n, numel, size, bitmap_bound)

    def bitmap_decode(self, payload: Bytes, numel: int, indices: Indices) -> None:
        """Decode indices, distrusting the payload."""
        need_numel(numel)
        status = self._native.bitmap_decode(len(indices), payload, len(payload), numel, indices)
        _decoded(status, "bitmap")

    def elias_fano_encode(self, indices: Indices, numel: int, out: Bytes) -> int:
        """Encode indices; returns the bytes written."""
        need_numel(numel)
        n, size = len(indices), len(out)
        result = self._native.elias_fano_encode(n, indices, numel, size, out)
        return _encoded(result, n, numel, size, elias_fano_bound)

    def elias_fano_decode(self, payload: Bytes, numel: int, indices: Indices) -> None:
        """Decode indices, distrusting the payload."""
        need_numel(numel)
        status = self._native.elias_fano_decode(len(indices), payload, len(payload), numel, indices)
        _decoded(status, "Elias-Fano-coded indices")

    def block16_encode(self, indices: Indices, numel: int, out: Bytes) -> int:
        """Encode indices; returns the bytes written."""
        need_numel(numel)
        n, size = len(indices), len(out)
        result = self._native.block16_encode(n, indices, numel, size, out)
        return _encoded(result, n, numel, size, block16_bound)

    def block16_decode(self, payload: Bytes, numel: int, indices: Indices) -> None:
        """Decode indices, distrusting the payload."""
        need_numel(numel)
        status = self._native.block16_decode(len(indices), payload, len(payload), numel, indices)
        _decoded(status, "16-bit indices")

    def golomb_size(self, indices: Indices, numel: int) -> int:
        """Return the bytes of the Golomb code."""
        need_numel(numel)
        size = self._native.golomb_size(len(indices), indices, numel)
        return size if size >= 0 else refuse_indices(numel)

    def interpolative_size(self, indices: Indices, numel: int) -> int:
        """Return the bytes of the interpolative code."""
        need_numel(numel)
        size = self._native.interpolative_size(len(indices), indices, numel)
        return size if size >= 0 else refuse_indices(numel)

    def bitpack_size(self, indices: Indices) -> int:
        """Return the bytes of bit-packed gaps."""
        return self._native.bitpack_size(len(indices), indices)

    def block16_size(self, indices: Indices) -> int:
        """Return the bytes of 16-bit indices."""
        return self._native.block16_size(len(indices), indices)
