"""The contract of the kernels: one table of functions, several implementations, the same bits.

``reference.py`` (NumPy) is the readable twin and the oracle; ``cpu.py`` calls the native module (scalar, AVX2, AVX-512).
``tests/contracts/kernels.py`` runs over all of them and compares bits, so every rule below is exact:

* Arithmetic is IEEE float32, each operation rounded once (no fused multiply-add), in the order written here.
* ``momentum``, ``threshold`` and ``scale`` are rounded to float32 before use.
* Arrays are 1-D and C-contiguous; gradients, velocities, residuals, values ``float32``; indices ``uint32``; wire bytes ``uint8``.
* Outputs named ``indices`` and ``values`` of the selecting kernels need ``SPARE`` elements beyond their capacity,
  whose contents are undefined afterwards: capacity = ``len(indices) - SPARE``. Other outputs need no spare.
* Nothing is allocated in proportion to the input by the native implementations; the GIL is released in them.
* Decoders treat their payload as hostile: they never read or write out of bounds and raise
  :class:`~sparse_ring.errors.MessageError` with a reason.

Index codes (bits are LSB first within a byte; ``gap[0] = index[0]``, ``gap[i] = index[i] - index[i-1] - 1``):

golomb
    u32 ``M`` >= 1, chosen by the encoder as ``max(1, ((numel - count) * 45426 // 65536 + count // 2) // count)`` (0.6931 of the
    mean gap, rounded; u64 arithmetic; a count of 0 encodes to zero bytes). Then, where count > ``BLOCK`` (4096), the directory:
    for each block but the last, u32 ``bytes`` (length of this block's bits) and u32 ``last`` (the block's last index).
    Then the blocks, each starting on a byte, its unused high bits zero. The first gap of a block counts from the previous block's
    last index (as in one stream). An element is ``gap // M`` zero bits, a one bit, and ``gap % M`` in truncated binary:
    b = floor(log2 M), c = 2**(b+1) - M; x = r where r < c, else (r + c) >> 1; x in b bits (LSB first), then where x >= c one
    more bit, (r + c) & 1.
bitpack
    Blocks of 128 gaps: one byte ``width`` (0..32, bits of the block's largest gap), then the gaps, ``width`` bits each, the block
    padded to a byte. A count of 0 encodes to zero bytes.

bitmap
    ``ceil(numel / 8)`` bytes, bit i set where i is an index. A count of 0 encodes to zero bytes, as in the two codes below.
elias_fano (Elias, J. ACM 1974; Fano 1971)
    One byte ``l`` <= 31, chosen by the encoder as floor(log2(numel // count)). The lowest l bits of each index, padded to a byte.
    Then the rest in unary: for each index ``(index >> l) - (previous >> l)`` zero bits and a one bit, padded to a byte.
block16
    u32 number of blocks of 65,536 positions that hold an index; for each of them, in order, u16 number of the block and u16
    (indices in it - 1); then for each index its place in its block as u16.
interpolative (Moffat and Stuiver, Information Retrieval 2000)
    The indices ``x[1..count]`` level by level, ``x[0]`` being -1 and ``x[count + 1]`` numel: for each stride from the largest power
    of two <= count down to 1, the odd multiples ``i`` of the stride. Their neighbours ``l = i - stride`` and
    ``r = min(i + stride, count + 1)`` are known by then, so ``x[i]`` is one of ``n = x[r] - x[l] - (r - l - 1)`` numbers from
    ``x[l] + i - l`` on; which, is written in centred truncated binary: with b = floor(log2 n), c = 2**(b+1) - n, the c numbers from
    ``(n - c) // 2`` on take b bits. y = (number - (n - c) // 2) mod n as golomb writes ``gap % M``. All padded to a byte.

Value codes:

float32
    The values, little-endian. Written with plain copies, so it has no kernel but the finite check.
float16
    scale = 2**e with e the exponent of the largest magnitude (``frexp``'s minus 1, at least -126; 1.0 where all are zero), then
    ``float16(value / scale)`` (round to nearest even), decoded as ``float32(half) * scale``.
sign
    scale = float32 of the mean magnitude (``sum_magnitudes / count`` in float64); a bit a value, 1 where negative (sign bit),
    LSB first, zero padded; decoded as +-scale.
bfloat16
    The upper 16 bits of the value, rounded to nearest even; what would round to infinity becomes the largest finite one. Scale 1.
levels (int2, int3, int4, int8: ``bits`` is 2, 3, 4, 8)
    f32 ``low``, the smallest magnitude, in the first 4 bytes; then a code of ``bits`` bits a value, LSB first, zero padded: its
    level, and in the highest bit its sign (1 where negative). ``L = 2**(bits-1)`` levels; ``level_table(bits)`` has them as
    float32. Decoded as ``+-(low + scale * table[level])``. The encoder takes ``excess = (|value| - low) / scale`` (``/ 1`` where
    the scale is 0) and
    2, 3, 4 bits: scale = min(max(0, sum_magnitudes / count - low) in float64 to float32, (largest float32 - low) / 8); level =
    how many of the midpoints between neighbours in the table are at or below the excess (magnitudes of a truncated tail
    decrease about exponentially: these are the best levels for that, Lloyd-Max, in units of 1/256);
    8 bits: scale = largest magnitude - low; table[j] = ((2j + 1) / 256)**2; level = min(127, trunc(sqrt(excess) * 128)).
    A count of 0 encodes to zero bytes and scale 0.

Products with the skinny factors of low-rank compression have their contract in ``factors.py``.
The codes of gradients that are sent whole are specified in ``quantize.py``.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sparse_ring.kernels.factors import FactorKernels
from sparse_ring.kernels.quantize import Scheme

Floats = NDArray[np.float32]
Indices = NDArray[np.uint32]
Bytes = NDArray[np.uint8]
Halves = NDArray[np.uint16]

SPARE = 16
BLOCK = 4096
CHUNK = 4096


class Kernels(FactorKernels, Protocol):
    """One implementation of every kernel; ``name`` is ``"reference"``, ``"scalar"``, ``"avx2"``, …"""

    name: str

    def all_finite(self, x: Floats) -> bool:
        """Return whether no element of ``x`` is NaN or infinite."""

    def accumulate(
        self, gradient: Floats, velocity: Floats | None, residual: Floats, momentum: float, nesterov: bool
    ) -> None:
        """Add the gradient into the state, in place (momentum correction: DGC, ICLR 2018, section 3.2).

        With a velocity: ``u = m*u + g``; ``r = r + u``, or with Nesterov ``r = r + (m*u + g)`` (u the new one).
        Without: ``r = r + g``.
        """

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
        """``accumulate`` and ``select`` on the new residual, fused in one pass over memory. Returns as ``select``."""

    def select(self, x: Floats, threshold: float, indices: Indices, values: Floats) -> int:
        """Write position and value of every element with ``|x| >= threshold``, in index order.

        Returns how many there are, which may exceed the capacity: then only the first ``capacity`` are written.
        ``threshold`` is positive; NaN is never selected.
        """

    def select_chunks(self, x: Floats, keep: int, indices: Indices, values: Floats) -> int:
        """In each chunk of ``CHUNK`` elements write position and value of the ``keep`` largest magnitudes, in index order.

        Of equal ones those with the lowest index; magnitudes below the smallest normal float32 and NaN never. A last chunk of
        ``length`` elements keeps ``chunk_keep(length, keep)``. Returns how many there are; ``1 <= keep <= CHUNK``, and there is
        room for ``chunks_keep(len(x), keep)``.
        """

    def kth_magnitude(self, x: Floats, k: int, scratch: Floats) -> float:
        """Return the ``k``-th largest magnitude of ``x`` (1 <= k <= len(x)); ``scratch`` holds ``len(x)`` floats.

        ``x`` holds no NaN.
        """

    def update_residual(
        self, residual: Floats, velocity: Floats | None, indices: Indices, values: Floats, decoded: Floats
    ) -> None:
        """After sending: ``r[i] = values - decoded`` and ``u[i] = 0`` at the sent positions (DGC's factor masking)."""

    def scatter_add(self, out: Floats, indices: Indices, values: Floats, scale: float) -> None:
        """``out[indices] += values * scale`` (product rounded, then the sum). Indices are distinct and in bounds."""

    def add_scaled(self, out: Floats, values: Floats, scale: float) -> None:
        """``out += values * scale`` (product rounded, then the sum)."""

    def sum_magnitudes(self, values: Floats) -> float:
        """Return the float64 sum of ``|values|`` in a fixed order.

        Eight float64 accumulators, element i into accumulator i mod 8 in increasing order, then
        ``((a0+a4) + (a2+a6)) + ((a1+a5) + (a3+a7))``.
        """

    def golomb_encode(self, indices: Indices, numel: int, out: Bytes) -> int:
        """Encode strictly increasing indices; returns the bytes written. ``out`` holds ``golomb_bound(count, numel)``."""

    def golomb_decode(self, payload: Bytes, numel: int, indices: Indices) -> None:
        """Decode exactly ``len(indices)`` indices; raises MessageError unless the payload is used up exactly.

        Checks: M >= 1, directory lengths and ``last`` entries, every index < numel, padding bits zero.
        """

    def interpolative_encode(self, indices: Indices, numel: int, out: Bytes) -> int:
        """Encode strictly increasing indices; returns the bytes written.

        ``out`` holds ``interpolative_bound(count, numel)``.
        """

    def interpolative_decode(self, payload: Bytes, numel: int, indices: Indices) -> None:
        """Decode exactly ``len(indices)`` indices; raises MessageError as ``golomb_decode``. ``numel`` is the encoder's."""

    def bitpack_encode(self, indices: Indices, numel: int, out: Bytes) -> int:
        """Encode strictly increasing indices; returns the bytes written. ``out`` holds ``bitpack_bound(count)``."""

    def bitpack_decode(self, payload: Bytes, numel: int, indices: Indices) -> None:
        """Decode exactly ``len(indices)`` indices; raises MessageError as ``golomb_decode`` (width <= 32, bounds, padding)."""

    def bitmap_encode(self, indices: Indices, numel: int, out: Bytes) -> int:
        """Encode strictly increasing indices; returns the bytes written. ``out`` holds ``bitmap_bound(count, numel)``."""

    def bitmap_decode(self, payload: Bytes, numel: int, indices: Indices) -> None:
        """Decode exactly ``len(indices)`` indices; raises MessageError unless as many bits are set (length, padding)."""

    def elias_fano_encode(self, indices: Indices, numel: int, out: Bytes) -> int:
        """Encode strictly increasing indices; returns the bytes written. ``out`` holds ``elias_fano_bound(count, numel)``."""

    def elias_fano_decode(self, payload: Bytes, numel: int, indices: Indices) -> None:
        """Decode exactly ``len(indices)`` indices; raises MessageError as ``golomb_decode`` (width, order, bounds, padding)."""

    def block16_encode(self, indices: Indices, numel: int, out: Bytes) -> int:
        """Encode strictly increasing indices; returns the bytes written. ``out`` holds ``block16_bound(count, numel)``."""

    def block16_decode(self, payload: Bytes, numel: int, indices: Indices) -> None:
        """Decode exactly ``len(indices)`` indices; raises MessageError as ``golomb_decode`` (directory, order, bounds)."""

    def golomb_size(self, indices: Indices, numel: int) -> int:
        """Return the bytes that ``golomb_encode`` would write for these strictly increasing indices below ``numel``."""

    def interpolative_size(self, indices: Indices, numel: int) -> int:
        """Return the bytes that ``interpolative_encode`` would write for these strictly increasing indices below ``numel``."""

    def bitpack_size(self, indices: Indices) -> int:
        """Return the bytes that ``bitpack_encode`` would write for these strictly increasing indices."""

    def block16_size(self, indices: Indices) -> int:
        """Return the bytes that ``block16_encode`` would write for these strictly increasing indices."""

    def float16_encode(self, values: Floats, out: Halves, decoded: Floats) -> float:
        """Encode finite values into ``out``, what a receiver will see into ``decoded``; returns the scale."""

    def float16_decode(self, payload: Halves, scale: float, values: Floats) -> None:
        """Decode; raises MessageError where a value or the scale is not finite."""

    def sign_encode(self, values: Floats, out: Bytes, decoded: Floats) -> float:
        """Encode into ``out`` (``ceil(count / 8)`` bytes) and ``decoded``; returns the scale (0 for no values)."""

    def sign_decode(self, payload: Bytes, scale: float, values: Floats) -> None:
        """Decode; raises MessageError where the scale is not finite or padding is set."""

    def bfloat16_encode(self, values: Floats, out: Halves, decoded: Floats) -> float:
        """Encode finite values into ``out``, what a receiver will see into ``decoded``; returns 1."""

    def bfloat16_decode(self, payload: Halves, values: Floats) -> None:
        """Decode; raises MessageError where a value is not finite."""

    def levels_encode(self, values: Floats, bits: int, out: Bytes, decoded: Floats) -> float:
        """Encode finite values into ``out`` (``levels_size(count, bits)`` bytes) and ``decoded``; returns the scale."""

    def levels_decode(self, payload: Bytes, bits: int, scale: float, values: Floats) -> None:
        """Decode; raises MessageError where low, scale or the largest level is negative or not finite, or padding is set."""

    def quantize_encode(
        self, values: Floats, scheme: Scheme, scale: float, key: int, out: Bytes, decoded: Floats
    ) -> float:
        """Encode finite values into ``out`` (``scheme.size(count)`` bytes) and ``decoded``; returns the frame's scale.

        ``scale`` (finite, not negative) matters to schemes without scales of their own, ``key`` (64 bits) to stochastic ones.
        """

    def quantize_decode(self, payload: Bytes, scheme: Scheme, scale: float, values: Floats) -> None:
        """Decode; raises MessageError for the wrong length, a scale that is negative or not finite, an unknown table, a byte
        that holds no digits, or padding.
        """

    def float32_to_bfloat16(self, x: Floats, out: Halves) -> None:
        """Round to nearest even; NaN stays NaN (quiet, sign kept, 0x7FC0 | sign)."""

    def bfloat16_to_float32(self, x: Halves, out: Floats) -> None:
        """Widen exactly."""

    def float32_to_float16(self, x: Floats, out: Halves) -> None:
        """Round to nearest even; beyond 65,504 infinite, NaN stays NaN (quiet, sign and upper bits kept)."""

    def float16_to_float32(self, x: Halves, out: Floats) -> None:
        """Widen exactly; NaN becomes quiet."""

    def crc32(self, data: Bytes, start: int = 0) -> int:
        """CRC-32 (IEEE 802.3, as zlib) of ``data``, continuing from ``start``."""


def chunk_keep(length: int, keep: int) -> int:
    """Return how many of a chunk's ``length`` (1 to ``CHUNK``) elements ``select_chunks`` keeps: in proportion, at least one."""
    return max(1, (keep * length + CHUNK // 2) // CHUNK)


def chunks_keep(numel: int, keep: int) -> int:
    """Return how many of ``numel`` elements ``select_chunks`` keeps at most."""
    whole, rest = divmod(numel, CHUNK)
    return whole * keep + (chunk_keep(rest, keep) if rest else 0)


def golomb_bound(count: int, numel: int) -> int:
    """Return an upper bound of the bytes that ``golomb_encode`` writes for any ``count`` indices below ``numel``."""
    if count == 0:
        return 0
    blocks = -(-count // BLOCK)
    modulus = golomb_modulus(count, numel)
    bits = count * (modulus.bit_length() + 1) + (numel - count) // modulus
    return 4 + 8 * (blocks - 1) + bits // 8 + blocks + 16


def golomb_modulus(count: int, numel: int) -> int:
    """Return the Golomb parameter M that the encoder uses for ``count`` >= 1 of ``numel`` elements."""
    return max(1, ((numel - count) * 45426 // 65536 + count // 2) // count)


def interpolative_bound(count: int, numel: int) -> int:
    """Return an upper bound of the bytes that ``interpolative_encode`` writes for any ``count`` indices below ``numel``."""
    # The numbers of one level choose from at most numel in all, so that equal shares take the most bits.
    levels = [(count + 2**level) // 2 ** (level + 1) for level in range(count.bit_length())]
    return sum(n * ((numel // n).bit_length() + 1) for n in levels) // 8 + 16 if count else 0


def bitpack_bound(count: int) -> int:
    """Return an upper bound of the bytes that ``bitpack_encode`` writes for ``count`` indices."""
    return -(-count // 128) + 4 * count + 16


def bitmap_bound(count: int, numel: int) -> int:
    """Return the bytes that ``bitmap_encode`` writes for ``count`` indices below ``numel``."""
    return -(-numel // 8) if count else 0


def elias_fano_width(count: int, numel: int) -> int:
    """Return how many low bits ``elias_fano_encode`` takes off each of ``count`` >= 1 indices below ``numel``."""
    return (numel // count).bit_length() - 1


def elias_fano_size(count: int, numel: int, last: int) -> int:
    """Return the bytes that ``elias_fano_encode`` writes for ``count`` indices below ``numel``, the largest being ``last``."""
    if count == 0:
        return 0
    width = elias_fano_width(count, numel)
    return 1 + -(-count * width // 8) + -(-(count + (last >> width)) // 8)


def elias_fano_bound(count: int, numel: int) -> int:
    """Return an upper bound of the bytes that ``elias_fano_encode`` writes for any ``count`` indices below ``numel``."""
    return elias_fano_size(count, numel, numel - 1) + 16 if count else 0


def block16_bound(count: int, numel: int) -> int:
    """Return an upper bound of the bytes that ``block16_encode`` writes for any ``count`` indices below ``numel``."""
    return 4 + 4 * min(count, -(-numel // 65536)) + 2 * count + 16 if count else 0


_EXPONENTIAL_LEVELS = {2: [152, 664], 3: [85, 302, 605, 1117], 4: [45, 147, 264, 402, 571, 788, 1092, 1604]}


def level_table(bits: int) -> Floats:
    """Return the levels of the code of so many bits, ``float32[2**(bits-1)]``; exact."""
    sizes = (2 * np.arange(128) + 1) ** 2 / 256 if bits == 8 else np.array(_EXPONENTIAL_LEVELS[bits])
    table: Floats = (sizes / 256).astype(np.float32)
    return table


def levels_size(count: int, bits: int) -> int:
    """Return the bytes of ``count`` values in levels of ``bits`` bits."""
    return 4 + -(-count * bits // 8) if count else 0
