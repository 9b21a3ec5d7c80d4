"""Products with skinny factors in NumPy: written for reading; the order of sums is specified in ``factors.py``."""

from __future__ import annotations

import math

import numpy as np

from sparse_ring.kernels.factors import LANES, VANISHED, Floats, renewed


def _padded(matrix: Floats, rows: int, columns: int) -> Floats:
    """The rows, filled up with zeros to whole groups of lanes: a product of zeros changes no sum."""
    whole = np.zeros((rows, -(-columns // LANES) * LANES), dtype=np.float32)
    whole[:, :columns] = matrix.reshape(rows, columns)
    return whole


def _dot(x: Floats, y: Floats) -> float:
    padded = np.zeros(-(-len(x) // 8) * 8, dtype=np.float64)
    padded[: len(x)] = x.astype(np.float64) * y.astype(np.float64)
    a = np.zeros(8, dtype=np.float64)
    for row in padded.reshape(-1, 8):
        a += row
    return float(((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7])))


def _scale(x: Floats, least: float) -> float:
    """Scale to norm 1 in place; returns the squared norm before, or 0 where it is not above ``least`` and finite."""
    squares = _dot(x, x)
    if not least < squares < math.inf:
        return 0.0
    x[:] = x.astype(np.float64) * (1.0 / math.sqrt(squares))
    return squares


def _make_orthonormal(x: Floats, before: Floats) -> bool:
    """Make ``x`` orthonormal to the rows of ``before`` in place; returns whether anything of it is left."""
    if not _scale(x, 0.0):
        return False
    for _ in range(2):
        for d in before:
            x[:] = x.astype(np.float64) - _dot(d, x) * d.astype(np.float64)
        squares = _scale(x, VANISHED)
        if not squares or squares > 0.5:
            break
    return squares > 0


class ReferenceFactors:
    """See :class:`sparse_ring.kernels.factors.FactorKernels`."""

    @np.errstate(all="ignore")
    def skinny_right(self, matrix: Floats, rows: int, columns: int, rank: int, factor: Floats, out: Floats) -> None:
        """``out = matrix @ factor``."""
        left, right = _padded(matrix, rows, columns), _padded(factor, rank, columns)
        for c in range(rank):
            sums = np.zeros((rows, LANES), dtype=np.float32)
            for j in range(0, left.shape[1], LANES):
                sums += left[:, j : j + LANES] * right[c, j : j + LANES]
            while (half := sums.shape[1] // 2) > 0:
                sums = sums[:, :half] + sums[:, half:]
            out[c * rows : (c + 1) * rows] = sums[:, 0]

    @np.errstate(all="ignore")
    def skinny_left(self, matrix: Floats, rows: int, columns: int, rank: int, factor: Floats, out: Floats) -> None:
        """``out = matrix.T @ factor``."""
        sums = np.zeros((rank, columns), dtype=np.float32)
        for row, coefficients in zip(matrix.reshape(rows, columns), factor.reshape(rank, rows).T, strict=True):
            sums += coefficients[:, np.newaxis] * row
        out[:] = sums.reshape(-1)

    @np.errstate(all="ignore")
    def skinny_outer(
        self, left: Floats, right: Floats, rows: int, columns: int, rank: int, residual: Floats, out: Floats
    ) -> None:
        """``out = left @ right.T`` and ``residual -= out``."""
        products = (
            x[:, np.newaxis] * y for x, y in zip(left.reshape(rank, rows), right.reshape(rank, columns), strict=True)
        )
        sums = next(products)
        for product in products:
            sums += product
        out[:] = sums.reshape(-1)
        residual -= out

    @np.errstate(all="ignore")
    def orthonormalise(self, factor: Floats, rows: int, rank: int) -> None:
        """Make the columns orthonormal in place."""
        columns = factor.reshape(rank, rows)
        for c, x in enumerate(columns):
            if not _make_orthonormal(x, columns[:c]):
                x[:] = renewed(rows, c)
                if not _make_orthonormal(x, columns[:c]):
                    x[:] = 0
