"""Products with skinny factors on the device, each sum in its order: see ``factors.py``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from sparse_ring.kernels.cpu.factors import need_shape
from sparse_ring.kernels.cpu.values import need
from sparse_ring.kernels.cuda.arithmetic import first_place, stride
from sparse_ring.kernels.cuda.memory import bring_back, launch, on_device, room_for, strides
from sparse_ring.kernels.cuda.orthonormal import make_columns_orthonormal
from sparse_ring.kernels.cuda.warp import (
    MOST_BLOCKS,
    THREADS,
    add,
    block_count,
    block_number,
    kernel,
    multiply,
    subtract,
    sync,
    thread_number,
)
from sparse_ring.kernels.factors import LANES, Floats

DOTS = THREADS // LANES  # that a block works on at once, an accumulator a thread
LEVELS = LANES.bit_length() - 1


@kernel("float32[::1], int64, int64, int64, float32[::1], float32[::1]")
def multiply_right(matrix: Any, rows: Any, columns: Any, rank: Any, factor: Any, out: Any) -> None:
    """Each dot of a row and a factor's column by 16 neighbouring threads, one an accumulator."""
    sums = cuda.shared.array(THREADS, np.float32)
    thread = thread_number()
    lane = thread % LANES
    for first in range(block_number() * DOTS, rows * rank, block_count() * DOTS):
        # Dots that follow each other share a row of the matrix.
        dot = first + thread // LANES
        row, column, total = dot // rank, dot % rank, np.float32(0)
        if dot < rows * rank:
            for j in range(lane, columns, LANES):
                total = add(total, multiply(matrix[row * columns + j], factor[column * columns + j]))
        sums[thread] = total
        for level in range(LEVELS):
            half = LANES >> (level + 1)
            sync()
            if lane < half:
                sums[thread] = add(sums[thread], sums[thread + half])
        if lane == 0 and dot < rows * rank:
            out[column * rows + row] = sums[thread]
        sync()


@kernel("float32[::1], int64, int64, float32[::1], float32[::1]")
def multiply_left(matrix: Any, rows: Any, columns: Any, factor: Any, out: Any) -> None:
    """Each element by one thread, which takes the rows in order; neighbouring threads read neighbouring elements."""
    for place in range(first_place(), len(out), stride()):
        column, j = place // columns, place % columns
        total = np.float32(0)
        for i in range(rows):
            total = add(total, multiply(factor[column * rows + i], matrix[i * columns + j]))
        out[place] = total


@kernel("float32[::1], float32[::1], int64, int64, int64, float32[::1], float32[::1]")
def multiply_outer(left: Any, right: Any, rows: Any, columns: Any, rank: Any, residual: Any, out: Any) -> None:
    """out = left * right, and residual = residual - out."""
    for place in range(first_place(), len(out), stride()):
        i, j = place // columns, place % columns
        total = multiply(left[i], right[j])
        for column in range(1, rank):
            total = add(total, multiply(left[column * rows + i], right[column * columns + j]))
        out[place] = total
        residual[place] = subtract(residual[place], total)


class CudaFactors:
    """See :class:`sparse_ring.kernels.factors.FactorKernels`."""

    def skinny_right(self, matrix: Floats, rows: int, columns: int, rank: int, factor: Floats, out: Floats) -> None:
        """``out = matrix @ factor``."""
        need_shape(rows, columns, rank)
        need("matrix", len(matrix), rows * columns)
        need("factor", len(factor), columns * rank)
        need("out", len(out), rows * rank)
        m, f = on_device("matrix", matrix, np.float32), on_device("factor", factor, np.float32)
        made = room_for("out", out, np.float32)
        launch(multiply_right, min(MOST_BLOCKS, -(-rows * rank // DOTS)), m, rows, columns, rank, f, made)
        bring_back(made, out)

    def skinny_left(self, matrix: Floats, rows: int, columns: int, rank: int, factor: Floats, out: Floats) -> None:
        """``out = matrix.T @ factor``."""
        need_shape(rows, columns, rank)
        need("matrix", len(matrix), rows * columns)
        need("factor", len(factor), rows * rank)
        need("out", len(out), columns * rank)
        m, f = on_device("matrix", matrix, np.float32), on_device("factor", factor, np.float32)
        made = room_for("out", out, np.float32)
        launch(multiply_left, strides(columns * rank), m, rows, columns, f, made)
        bring_back(made, out)

    def skinny_outer(
        self, left: Floats, right: Floats, rows: int, columns: int, rank: int, residual: Floats, out: Floats
    ) -> None:
        """``out = left @ right.T`` and ``residual -= out``."""
        need_shape(rows, columns, rank)
        need("left", len(left), rows * rank)
        need("right", len(right), columns * rank)
        need("residual", len(residual), rows * columns)
        need("out", len(out), rows * columns)
        a, b = on_device("left", left, np.float32), on_device("right", right, np.float32)
        r, made = on_device("residual", residual, np.float32, writable=True), room_for("out", out, np.float32)
        launch(multiply_outer, strides(rows * columns), a, b, rows, columns, rank, r, made)
        bring_back(r, residual)
        bring_back(made, out)

    def orthonormalise(self, factor: Floats, rows: int, rank: int) -> None:
        """Make the columns orthonormal in place, in one block of threads."""
        need_shape(rows, 0, rank)
        need("factor", len(factor), rows * rank)
        f = on_device("factor", factor, np.float32, writable=True)
        launch(make_columns_orthonormal, min(1, rows), f, rows, rank)
        bring_back(f, factor)
