"""The native products with skinny factors; see :mod:`sparse_ring.kernels.cpu.kernels`."""

from __future__ import annotations

from sparse_ring import _native
from sparse_ring.kernels.cpu.values import need
from sparse_ring.kernels.factors import Floats


def need_shape(rows: int, columns: int, rank: int) -> None:
    """Raise ValueError where a matrix or its factors cannot have this shape."""
    for argument, size, least in (("rows", rows, 0), ("columns", columns, 0), ("rank", rank, 1)):
        if size < least:
            raise ValueError(f"{argument} is {size}, but must be at least {least}.")


class CpuFactors:
    """Products with skinny factors in one table of native kernels."""

    _native: type[_native.Table]

    def skinny_right(self, matrix: Floats, rows: int, columns: int, rank: int, factor: Floats, out: Floats) -> None:
        """``out = matrix @ factor``."""
        need_shape(rows, columns, rank)
        need("matrix", len(matrix), rows * columns)
        need("factor", len(factor), columns * rank)
        need("out", len(out), rows * rank)
        self._native.skinny_right(rows * columns, matrix, rows, columns, rank, factor, out)

    def skinny_left(self, matrix: Floats, rows: int, columns: int, rank: int, factor: Floats, out: Floats) -> None:
        """``out = matrix.T @ factor``."""
        need_shape(rows, columns, rank)
        need("matrix", len(matrix), rows * columns)
        need("factor", len(factor), rows * rank)
        need("out", len(out), columns * rank)
        self._native.skinny_left(rows * columns, matrix, rows, columns, rank, factor, out)

    def skinny_outer(
        self, left: Floats, right: Floats, rows: int, columns: int, rank: int, residual: Floats, out: Floats
    ) -> None:
        """``out = left @ right.T`` and ``residual -= out``."""
        need_shape(rows, columns, rank)
        need("left", len(left), rows * rank)
        need("right", len(right), columns * rank)
        need("residual", len(residual), rows * columns)
        need("out", len(out), rows * columns)
        self._native.skinny_outer(rows * columns, left, right, rows, columns, rank, residual, out)

    def orthonormalise(self, factor: Floats, rows: int, rank: int) -> None:
        """Make the columns orthonormal in place."""
        need_shape(rows, 0, rank)
        need("factor", len(factor), rows * rank)
        self._native.orthonormalise(rows * rank, factor, rows, rank)
