"""Calls the native kernels: checks lengths, passes arrays on, turns result codes into errors.

The native module checks every array's dtype, contiguity and writability (ValueError naming the argument) and releases the
GIL for all but tiny work; see ``native/module.cpp``.
"""

from __future__ import annotations

import zlib

from sparse_ring import _native
from sparse_ring.kernels.base import CHUNK, SPARE, Bytes, Floats, Indices, chunks_keep
from sparse_ring.kernels.cpu.factors import CpuFactors
from sparse_ring.kernels.cpu.indices import CpuIndexCodes, need_numel, refuse_indices
from sparse_ring.kernels.cpu.values import CpuValueCodes, need


def _capacity(indices: Indices, values: Floats) -> int:
    length = len(indices)
    if len(values) != length:
        raise ValueError(f"values has {len(values)} elements, but must have {length} as indices.")
    if length < SPARE:
        raise ValueError(f"indices has {length} elements, but must have at least {SPARE} spare ones.")
    return length - SPARE


class CpuKernels(CpuIndexCodes, CpuValueCodes, CpuFactors):
    """The native kernels of one instruction set; see :mod:`sparse_ring.kernels.base`.

    ``name`` is ``"scalar"``, ``"avx2"`` or ``"avx512"``. Raises ValueError where this processor cannot run it.
    """

    def __init__(self, name: str) -> None:
        if name not in _native.supported():
            raise ValueError(f"kernels {name!r} do not run here; this processor runs {_native.supported()}.")
        self.name = name
        self._native = getattr(_native, name)

    def all_finite(self, x: Floats) -> bool:
        """Return whether no element of ``x`` is NaN or infinite."""
        return self._native.all_finite(len(x), x)

    def accumulate(
        self, gradient: Floats, velocity: Floats | None, residual: Floats, momentum: float, nesterov: bool
    ) -> None:
        """Add the gradient into velocity and residual."""
        n = len(gradient)
        need("residual", len(residual), n)
        if velocity is not None:
            need("velocity", len(velocity), n)
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
        need("residual", len(residual), n)
        if velocity is not None:
            need("velocity", len(velocity), n)
        need_numel(n)
        capacity = _capacity(indices, values)
        return self._native.accumulate_select(
            n, gradient, velocity, residual, momentum, nesterov, threshold, capacity, indices, values
        )

    def select(self, x: Floats, threshold: float, indices: Indices, values: Floats) -> int:
        """Write position and value of every element at or above the threshold."""
        n = len(x)
        need_numel(n)
        return self._native.select(n, x, threshold, _capacity(indices, values), indices, values)

    def select_chunks(self, x: Floats, keep: int, indices: Indices, values: Floats) -> int:
        """Write position and value of the largest magnitudes of each chunk."""
        n = len(x)
        need_numel(n)
        if not 1 <= keep <= CHUNK:
            raise ValueError(f"keep is {keep}, but must be from 1 to {CHUNK}.")
        room, most = _capacity(indices, values), chunks_keep(n, keep)
        if room < most:
            raise ValueError(f"indices has room for {room} elements, but must have it for {most}.")
        return self._native.select_chunks(n, x, keep, indices, values)

    def kth_magnitude(self, x: Floats, k: int, scratch: Floats) -> float:
        """Return the ``k``-th largest magnitude."""
        n = len(x)
        need("scratch", len(scratch), n)
        if not 1 <= k <= n:
            raise ValueError(f"k is {k}, but must be from 1 to {n}.")
        return self._native.kth_magnitude(n, x, k, scratch)

    def update_residual(
        self, residual: Floats, velocity: Floats | None, indices: Indices, values: Floats, decoded: Floats
    ) -> None:
        """Keep what was not sent, and clear the velocity that was."""
        n, numel = len(indices), len(residual)
        need("values", len(values), n)
        need("decoded", len(decoded), n)
        if velocity is not None:
            need("velocity", len(velocity), numel)
        if self._native.update_residual(n, indices, values, decoded, numel, residual, velocity):
            refuse_indices(numel)

    def scatter_add(self, out: Floats, indices: Indices, values: Floats, scale: float) -> None:
        """Add scaled values at the indices."""
        n, numel = len(indices), len(out)
        need("values", len(values), n)
        if self._native.scatter_add(n, indices, values, scale, numel, out):
            refuse_indices(numel)

    def add_scaled(self, out: Floats, values: Floats, scale: float) -> None:
        """Add scaled values everywhere."""
        n = len(values)
        need("out", len(out), n)
        self._native.add_scaled(n, values, scale, out)

    def sum_magnitudes(self, values: Floats) -> float:
        """Return the float64 sum of magnitudes in the fixed order."""
        return self._native.sum_magnitudes(len(values), values)

    def crc32(self, data: Bytes, start: int = 0) -> int:
        """CRC-32 of ``data``; zlib's is native and releases the GIL."""
        return zlib.crc32(data.data, start)
