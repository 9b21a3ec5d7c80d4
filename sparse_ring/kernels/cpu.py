"""Calls the native kernels: checks lengths, passes arrays on, turns result codes into errors.

The native module checks every array's dtype, contiguity and writability (ValueError naming the argument) and releases the
GIL for all but tiny work; see ``native/module.cpp``.
"""

from __future__ import annotations

import zlib
from typing import NoReturn

from sparse_ring import _native
from sparse_ring.errors import MessageError
from sparse_ring.kernels import reasons
from sparse_ring.kernels.base import SPARE, Bytes, Floats, Halves, Indices, bitpack_bound, golomb_bound

MOST_ELEMENTS = 2**32 - 1


def _need(argument: str, length: int, expected: int) -> None:
    if length != expected:
        raise ValueError(f"{argument} has {length} elements, but must have {expected}.")


def _need_numel(numel: int) -> None:
    if not 0 <= numel <= MOST_ELEMENTS:
        raise ValueError(f"numel is {numel}, but must be from 0 to {MOST_ELEMENTS}.")


def _capacity(indices: Indices, values: Floats) -> int:
    length = len(indices)
    if len(values) != length:
        raise ValueError(f"values has {len(values)} elements, but must have {length} as indices.")
    if length < SPARE:
        raise ValueError(f"indices has {length} elements, but must have at least {SPARE} spare ones.")
    return length - SPARE


def _refuse_indices(numel: int) -> NoReturn:
    raise ValueError(f"indices must be strictly increasing and below numel, which is {numel}.")


def _encoded(result: int, numel: int, size: int, bound: int) -> int:
    if result >= 0:
        return result
    if result == reasons.CAPACITY:
        raise ValueError(f"out has {size} bytes, but must have at least {bound}.")
    _refuse_indices(numel)


class CpuKernels:
    """The native kernels of one instruction set; see :mod:`sparse_ring.kernels.base`.

    ``name`` is ``"scalar"`` or ``"avx2"``. Raises ValueError where this processor cannot run it.
    """

    def __init__(self, name: str) -> None:
        if name not in _native.supported():
            raise ValueError(f"kernels {name!r} do not run here; this processor runs {_native.supported()}.")
        self.name = name
        self._native = _native.avx2 if name == "avx2" else _native.scalar

    def all_finite(self, x: Floats) -> bool:
        """Return whether no element of ``x`` is NaN or infinite."""
        return self._native.all_finite(len(x), x)

    def accumulate(
        self, gradient: Floats, velocity: Floats | None, residual: Floats, momentum: float, nesterov: bool
    ) -> None:
        """Add the gradient into velocity and residual."""
        n = len(gradient)
        _need("residual", len(residual), n)
        if velocity is not None:
            _need("velocity", len(velocity), n)
        self._native.accumulate(n, gradient, velocity, residual, momentum, nesterov)

    def accumulate_select(
        self,
        gradient: Floats,
        velocity: Floats | None,
        residual: Floats,
        momentum: float,
        nesterov: bool,
        threshold: float,
        indices: Indices,
        values: Floats,
    ) -> int:
        """Accumulate, then select from the residual, in one pass."""
        n = len(gradient)
        _need("residual", len(residual), n)
        if velocity is not None:
            _need("velocity", len(velocity), n)
        _need_numel(n)
        capacity = _capacity(indices, values)
        return self._native.accumulate_select(
            n, gradient, velocity, residual, momentum, nesterov, threshold, capacity, indices, values
        )

    def select(self, x: Floats, threshold: float, indices: Indices, values: Floats) -> int:
        """Write position and value of every element at or above the threshold."""
        n = len(x)
        _need_numel(n)
        return self._native.select(n, x, threshold, _capacity(indices, values), indices, values)

    def kth_magnitude(self, x: Floats, k: int, scratch: Floats) -> float:
        """Return the ``k``-th largest magnitude."""
        n = len(x)
        _need("scratch", len(scratch), n)
        if not 1 <= k <= n:
            raise ValueError(f"k is {k}, but must be from 1 to {n}.")
        return self._native.kth_magnitude(n, x, k, scratch)

    def update_residual(
        self, residual: Floats, velocity: Floats | None, indices: Indices, values: Floats, decoded: Floats
    ) -> None:
        """Keep what was not sent, and clear the velocity that was."""
        n, numel = len(indices), len(residual)
        _need("values", len(values), n)
        _need("decoded", len(decoded), n)
        if velocity is not None:
            _need("velocity", len(velocity), numel)
        if self._native.update_residual(n, indices, values, decoded, numel, residual, velocity):
            _refuse_indices(numel)

    def scatter_add(self, out: Floats, indices: Indices, values: Floats, scale: float) -> None:
        """Add scaled values at the indices."""
        n, numel = len(indices), len(out)
        _need("values", len(values), n)
        if self._native.scatter_add(n, indices, values, scale, numel, out):
            _refuse_indices(numel)

    def add_scaled(self, out: Floats, values: Floats, scale: float) -> None:
        """Add scaled values everywhere."""
        n = len(values)
        _need("out", len(out), n)
        self._native.add_scaled(n, values, scale, out)

    def sum_magnitudes(self, values: Floats) -> float:
        """Return the float64 sum of magnitudes in the fixed order."""
        return self._native.sum_magnitudes(len(values), values)

    def golomb_encode(self, indices: Indices, numel: int, out: Bytes) -> int:
        """Encode indices; returns the bytes written."""
        _need_numel(numel)
        n, size = len(indices), len(out)
        result = self._native.golomb_encode(n, indices, numel, size, out)
        return result if result >= 0 else _encoded(result, numel, size, golomb_bound(n, numel))

    def golomb_decode(self, payload: Bytes, numel: int, indices: Indices) -> None:
        """Decode indices, distrusting the payload."""
        _need_numel(numel)
        status = self._native.golomb_decode(len(indices), payload, len(payload), numel, indices)
        if status:
            raise MessageError(f"Golomb-coded indices: {reasons.BY_CODE[status]}")

    def bitpack_encode(self, indices: Indices, numel: int, out: Bytes) -> int:
        """Encode indices; returns the bytes written."""
        _need_numel(numel)
        n, size = len(indices), len(out)
        result = self._native.bitpack_encode(n, indices, numel, size, out)
        return result if result >= 0 else _encoded(result, numel, size, bitpack_bound(n))

    def bitpack_decode(self, payload: Bytes, numel: int, indices: Indices) -> None:
        """Decode indices, distrusting the payload."""
        _need_numel(numel)
        status = self._native.bitpack_decode(len(indices), payload, len(payload), numel, indices)
        if status:
            raise MessageError(f"bit-packed indices: {reasons.BY_CODE[status]}")

    def float16_encode(self, values: Floats, out: Halves, decoded: Floats) -> float:
        """Encode as halves of a power of two; returns the scale."""
        n = len(values)
        _need("out", len(out), n)
        _need("decoded", len(decoded), n)
        return self._native.float16_encode(n, values, out, decoded)

    def float16_decode(self, payload: Halves, scale: float, values: Floats) -> None:
        """Decode halves, distrusting payload and scale."""
        n = len(values)
        if len(payload) != n:
            raise MessageError(f"float16 values: {reasons.LENGTH} ({len(payload)} halves for {n})")
        status = self._native.float16_decode(n, payload, scale, values)
        if status:
            raise MessageError(f"float16 values: {reasons.BY_CODE[status]}")

    def sign_encode(self, values: Floats, out: Bytes, decoded: Floats) -> float:
        """Encode as sign bits; returns the mean magnitude."""
        n = len(values)
        _need("out", len(out), (n + 7) // 8)
        _need("decoded", len(decoded), n)
        return self._native.sign_encode(n, values, out, decoded)

    def sign_decode(self, payload: Bytes, scale: float, values: Floats) -> None:
        """Decode sign bits, distrusting payload and scale."""
        n = len(values)
        if len(payload) != (n + 7) // 8:
            raise MessageError(f"sign values: {reasons.LENGTH} ({len(payload)} bytes for {n})")
        status = self._native.sign_decode(n, payload, scale, values)
        if status:
            raise MessageError(f"sign values: {reasons.BY_CODE[status]}")

    def float32_to_bfloat16(self, x: Floats, out: Halves) -> None:
        """Round to bfloat16."""
        n = len(x)
        _need("out", len(out), n)
        self._native.float32_to_bfloat16(n, x, out)

    def bfloat16_to_float32(self, x: Halves, out: Floats) -> None:
        """Widen bfloat16."""
        n = len(x)
        _need("out", len(out), n)
        self._native.bfloat16_to_float32(n, x, out)

    def crc32(self, data: Bytes, start: int = 0) -> int:
        """CRC-32 of ``data``; zlib's is native and releases the GIL."""
        return zlib.crc32(data.data, start)
