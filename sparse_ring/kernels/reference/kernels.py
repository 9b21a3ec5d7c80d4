"""The kernels in NumPy: written for reading, the oracle of the native ones."""

from __future__ import annotations

import math
import zlib

import numpy as np

from sparse_ring.errors import MessageError
from sparse_ring.kernels import reasons
from sparse_ring.kernels.base import CHUNK, SPARE, Bytes, Floats, Halves, Indices, chunk_keep
from sparse_ring.kernels.quantize import Scheme
from sparse_ring.kernels.reference import indices as gap_codes
from sparse_ring.kernels.reference import interpolative as interpolative_codes
from sparse_ring.kernels.reference import positions as position_codes
from sparse_ring.kernels.reference import quantize as whole_codes
from sparse_ring.kernels.reference import values as value_codes
from sparse_ring.kernels.reference.factors import ReferenceFactors


def _float32(value: float) -> np.float32:
    with np.errstate(over="ignore"):
        rounded: np.float32 = np.float32(value)
        return rounded


class ReferenceKernels(ReferenceFactors):
    """Every kernel, one readable statement after the other; see :mod:`sparse_ring.kernels.base`."""

    name = "reference"

    def all_finite(self, x: Floats) -> bool:
        """Return whether no element of ``x`` is NaN or infinite."""
        return bool(np.isfinite(x).all())

    @np.errstate(all="ignore")
    def accumulate(
        self, gradient: Floats, velocity: Floats | None, residual: Floats, momentum: float, nesterov: bool
    ) -> None:
        """Add the gradient into velocity and residual."""
        m = _float32(momentum)
        added = gradient
        if velocity is not None:
            velocity[:] = m * velocity + gradient
            added = m * velocity + gradient if nesterov else velocity
        residual[:] = residual + added

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
        """Accumulate, then select from the residual."""
        self.accumulate(gradient, velocity, residual, momentum, nesterov)
        return self.select(residual, threshold, indices, values)

    def select(self, x: Floats, threshold: float, indices: Indices, values: Floats) -> int:
        """Write position and value of every element at or above the threshold."""
        positions = np.flatnonzero(np.abs(x) >= _float32(threshold))
        written = positions[: len(indices) - SPARE]
        indices[: len(written)] = written
        values[: len(written)] = x[written]
        return len(positions)

    def select_chunks(self, x: Floats, keep: int, indices: Indices, values: Floats) -> int:
        """Write position and value of the largest magnitudes of each chunk."""
        count = 0
        for first in range(0, len(x), CHUNK):
            sizes = np.abs(x[first : first + CHUNK])
            sizes[~(sizes >= np.finfo(np.float32).tiny)] = 0
            largest = np.argsort(-sizes, kind="stable")[: chunk_keep(len(sizes), keep)]
            positions = first + np.sort(largest[sizes[largest] > 0])
            written = slice(count, count + len(positions))
            indices[written], values[written] = positions, x[positions]
            count += len(positions)
        return count

    def kth_magnitude(self, x: Floats, k: int, scratch: Floats) -> float:
        """Return the ``k``-th largest magnitude."""
        scratch[:] = np.abs(x)
        scratch.sort()
        return float(scratch[len(x) - k])

    @np.errstate(all="ignore")
    def update_residual(
        self, residual: Floats, velocity: Floats | None, indices: Indices, values: Floats, decoded: Floats
    ) -> None:
        """Keep what was not sent, and clear the velocity that was."""
        residual[indices] = values - decoded
        if velocity is not None:
            velocity[indices] = 0

    @np.errstate(all="ignore")
    def scatter_add(self, out: Floats, indices: Indices, values: Floats, scale: float) -> None:
        """Add scaled values at the indices."""
        out[indices] += values * _float32(scale)

    @np.errstate(all="ignore")
    def add_scaled(self, out: Floats, values: Floats, scale: float) -> None:
        """Add scaled values everywhere."""
        out += values * _float32(scale)

    def sum_magnitudes(self, values: Floats) -> float:
        """Return the float64 sum of magnitudes in the fixed order."""
        return value_codes.sum_magnitudes(values)

    def golomb_encode(self, indices: Indices, numel: int, out: Bytes) -> int:
        """Encode indices; returns the bytes written."""
        return gap_codes.golomb_encode(indices, numel, out)

    def golomb_decode(self, payload: Bytes, numel: int, indices: Indices) -> None:
        """Decode indices, distrusting the payload."""
        gap_codes.golomb_decode(payload, numel, indices)

    def interpolative_encode(self, indices: Indices, numel: int, out: Bytes) -> int:
        """Encode indices; returns the bytes written."""
        return interpolative_codes.interpolative_encode(indices, numel, out)

    def interpolative_decode(self, payload: Bytes, numel: int, indices: Indices) -> None:
        """Decode indices, distrusting the payload."""
        interpolative_codes.interpolative_decode(payload, numel, indices)

    def bitpack_encode(self, indices: Indices, numel: int, out: Bytes) -> int:
        """Encode indices; returns the bytes written."""
        return gap_codes.bitpack_encode(indices, numel, out)

    def bitpack_decode(self, payload: Bytes, numel: int, indices: Indices) -> None:
        """Decode indices, distrusting the payload."""
        gap_codes.bitpack_decode(payload, numel, indices)

    def bitmap_encode(self, indices: Indices, numel: int, out: Bytes) -> int:
        """Encode indices; returns the bytes written."""
        return position_codes.bitmap_encode(indices, numel, out)

    def bitmap_decode(self, payload: Bytes, numel: int, indices: Indices) -> None:
        """Decode indices, distrusting the payload."""
        position_codes.bitmap_decode(payload, numel, indices)

    def elias_fano_encode(self, indices: Indices, numel: int, out: Bytes) -> int:
        """Encode indices; returns the bytes written."""
        return position_codes.elias_fano_encode(indices, numel, out)

    def elias_fano_decode(self, payload: Bytes, numel: int, indices: Indices) -> None:
        """Decode indices, distrusting the payload."""
        position_codes.elias_fano_decode(payload, numel, indices)

    def block16_encode(self, indices: Indices, numel: int, out: Bytes) -> int:
        """Encode indices; returns the bytes written."""
        return position_codes.block16_encode(indices, numel, out)

    def block16_decode(self, payload: Bytes, numel: int, indices: Indices) -> None:
        """Decode indices, distrusting the payload."""
        position_codes.block16_decode(payload, numel, indices)

    def golomb_size(self, indices: Indices, numel: int) -> int:
        """Return the bytes of the Golomb code."""
        return gap_codes.golomb_size(indices, numel)

    def interpolative_size(self, indices: Indices, numel: int) -> int:
        """Return the bytes of the interpolative code."""
        return interpolative_codes.interpolative_size(indices, numel)

    def bitpack_size(self, indices: Indices) -> int:
        """Return the bytes of bit-packed gaps."""
        return gap_codes.bitpack_size(indices)

    def block16_size(self, indices: Indices) -> int:
        """Return the bytes of 16-bit indices."""
        return position_codes.block16_size(indices)

    @np.errstate(all="ignore")
    def float16_encode(self, values: Floats, out: Halves, decoded: Floats) -> float:
        """Encode as halves of a power of two; returns the scale."""
        largest = float(np.abs(values).max(initial=0))
        scale = np.float32(2.0 ** max(math.frexp(largest)[1] - 1, -126) if largest else 1.0)
        halves = (values / scale).astype(np.float16)
        out[:] = halves.view(np.uint16)
        decoded[:] = halves.astype(np.float32) * scale
        return float(scale)

    @np.errstate(all="ignore")
    def float16_decode(self, payload: Halves, scale: float, values: Floats) -> None:
        """Decode halves, distrusting payload and scale."""
        if len(payload) != len(values):
            raise MessageError(f"float16 values: {reasons.LENGTH} ({len(payload)} halves for {len(values)})")
        factor = _float32(scale)
        decoded = payload.view(np.float16).astype(np.float32) * factor
        if not (np.isfinite(factor) and np.isfinite(decoded).all()):
            raise MessageError(f"float16 values: {reasons.NOT_FINITE}")
        values[:] = decoded

    def sign_encode(self, values: Floats, out: Bytes, decoded: Floats) -> float:
        """Encode as sign bits; returns the mean magnitude."""
        scale = _float32(self.sum_magnitudes(values) / len(values) if len(values) else 0.0)
        negative = np.signbit(values)
        out[:] = np.packbits(negative, bitorder="little")
        decoded[:] = np.where(negative, -scale, scale)
        return float(scale)

    def sign_decode(self, payload: Bytes, scale: float, values: Floats) -> None:
        """Decode sign bits, distrusting payload and scale."""
        if len(payload) != (len(values) + 7) // 8:
            raise MessageError(f"sign values: {reasons.LENGTH} ({len(payload)} bytes for {len(values)})")
        factor = _float32(scale)
        if not np.isfinite(factor):
            raise MessageError(f"sign values: {reasons.NOT_FINITE}")
        negative = np.unpackbits(payload, bitorder="little")
        if negative[len(values) :].any():
            raise MessageError(f"sign values: {reasons.PADDING}")
        values[:] = np.where(negative[: len(values)], -factor, factor)

    def bfloat16_encode(self, values: Floats, out: Halves, decoded: Floats) -> float:
        """Encode as bfloat16; returns the scale."""
        return value_codes.bfloat16_encode(values, out, decoded)

    def bfloat16_decode(self, payload: Halves, values: Floats) -> None:
        """Decode bfloat16, distrusting the payload."""
        value_codes.bfloat16_decode(payload, values)

    def levels_encode(self, values: Floats, bits: int, out: Bytes, decoded: Floats) -> float:
        """Encode as levels of the excess; returns the scale."""
        return value_codes.levels_encode(values, bits, out, decoded)

    def levels_decode(self, payload: Bytes, bits: int, scale: float, values: Floats) -> None:
        """Decode levels, distrusting payload and scale."""
        value_codes.levels_decode(payload, bits, scale, values)

    def quantize_encode(
        self, values: Floats, scheme: Scheme, scale: float, key: int, out: Bytes, decoded: Floats
    ) -> float:
        """Encode a whole gradient in few bits a value; returns the frame's scale."""
        return whole_codes.quantize_encode(values, scheme, scale, key, out, decoded)

    def quantize_decode(self, payload: Bytes, scheme: Scheme, scale: float, values: Floats) -> None:
        """Decode a whole gradient, distrusting payload and scale."""
        whole_codes.quantize_decode(payload, scheme, scale, values)

    def float32_to_bfloat16(self, x: Floats, out: Halves) -> None:
        """Round to bfloat16."""
        bits = x.view(np.uint32).astype(np.uint64)
        rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
        out[:] = np.where(np.isnan(x), bits >> 16 & 0x8000 | 0x7FC0, rounded)

    def bfloat16_to_float32(self, x: Halves, out: Floats) -> None:
        """Widen bfloat16."""
        out.view(np.uint32)[:] = x.astype(np.uint32) << 16

    @np.errstate(all="ignore")
    def float32_to_float16(self, x: Floats, out: Halves) -> None:
        """Round to half precision."""
        bits = x.view(np.uint32)
        nan = bits >> 16 & 0x8000 | 0x7E00 | bits >> 13 & 0x3FF
        out[:] = np.where(np.isnan(x), nan, x.astype(np.float16).view(np.uint16))

    @np.errstate(all="ignore")
    def float16_to_float32(self, x: Halves, out: Floats) -> None:
        """Widen half precision."""
        halves = x.astype(np.uint32)
        nan = (halves & 0x8000) << 16 | 0x7FC00000 | (halves & 0x3FF) << 13
        wide = x.view(np.float16).astype(np.float32).view(np.uint32)
        out.view(np.uint32)[:] = np.where((halves & 0x7FFF) > 0x7C00, nan, wide)

    def crc32(self, data: Bytes, start: int = 0) -> int:
        """CRC-32 of ``data``, continuing from ``start``."""
        return zlib.crc32(data.data, start)
