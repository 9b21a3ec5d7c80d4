"""The contract of the kernels for factors of few columns, as low-rank compression needs them.

PowerSGD (Vogels et al., NeurIPS 2019) sends a matrix as the product of two skinny factors. The general rules are those of
:mod:`sparse_ring.kernels.base`: float32, each operation rounded once, sums in exactly the order written here.

A matrix is 1-D with ``rows * columns`` elements, row after row. A factor of ``rank`` >= 1 columns is 1-D as well, **column
after column**: element (i, c) of the factor of the rows is at ``c * rows + i``. Kernels then read and write whole vectors.
No output may overlap another argument.

Dots of :meth:`FactorKernels.orthonormalise` are float64 sums of exact products, in the order of ``sum_magnitudes``: eight
accumulators, element i into accumulator i mod 8, then ``((a0+a4) + (a2+a6)) + ((a1+a5) + (a3+a7))``.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

LANES = 16
"""Partial sums of a dot in ``skinny_right``."""

VANISHED = 2.0**-32
"""Squared norm, relative to the column's own, at or below which nothing of a column is left: float32 cannot tell it from
the rounding of the product that made the column."""


class FactorKernels(Protocol):
    """Products of a matrix with skinny factors."""

    def skinny_right(self, matrix: Floats, rows: int, columns: int, rank: int, factor: Floats, out: Floats) -> None:
        """``out = matrix @ factor``: a factor of the columns gives one of the rows.

        Each dot has 16 accumulators that begin at 0, column j is added into accumulator j mod 16 in increasing order, then
        accumulators l and l + 8 are added for l < 8, and so on for 4, 2 and 1.
        """

    def skinny_left(self, matrix: Floats, rows: int, columns: int, rank: int, factor: Floats, out: Floats) -> None:
        """``out = matrix.T @ factor``: a factor of the rows gives one of the columns.

        Each element begins at 0 and takes the rows in increasing order (product rounded, then the sum).
        """

    def skinny_outer(
        self, left: Floats, right: Floats, rows: int, columns: int, rank: int, residual: Floats, out: Floats
    ) -> None:
        """``out = left @ right.T`` and ``residual -= out``, in one pass over memory.

        ``left`` is a factor of the rows, ``right`` of the columns; what remains in the residual was not sent.
        Each element begins with the product of the factors' first columns and adds the others' in increasing order.
        """

    def orthonormalise(self, factor: Floats, rows: int, rank: int) -> None:
        """Make the columns orthonormal in place, by modified Gram-Schmidt; the result is finite whatever the input.

        For each column x in order, where *scaling* is ``s = x·x``; ``x = float32(float64(x) * (1 / sqrt(s)))``:

        1. Scale. A column that is 0, or has a NaN or an infinity, has vanished (``s`` is not above 0 and finite).
        2. For each column d before, in order: ``x = float32(float64(x) - (d·x) * float64(d))``. Scale; where ``s`` is at most
           ``VANISHED``, x has vanished. Where it is at most 1/2, do step 2 once more: what cancelled is not yet orthogonal.
        3. A vanished column becomes ``renewed(rows, c)``, a fixed vector of no particular direction, which takes steps 1 and 2.
           Where that vanishes as well (there are no more than ``rows`` directions), it is 0.

        So a factor never loses rank for good: a gradient of zeros leaves no direction, and the next one begins at fresh ones.
        """


def renewed(rows: int, column: int) -> Floats:
    """Return what stands in for a column that vanished, ``float32[rows]``, not yet of norm 1.

    Element i is ``mix((i + 1) * 0x9E3779B1 + column * 0x7FEB352D)`` in uint32, read as int32 and rounded to float32; ``mix`` is
    MurmurHash3's last step (Appleby).
    """
    h = np.arange(1, rows + 1, dtype=np.uint32) * np.uint32(0x9E3779B1) + np.uint32(column * 0x7FEB352D % 2**32)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        h = (h ^ h >> np.uint32(shift)) * np.uint32(factor)
    mixed: Floats = (h ^ h >> np.uint32(16)).view(np.int32).astype(np.float32)
    return mixed
