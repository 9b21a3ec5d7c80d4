"""Orthonormal columns on the device, by one block of threads: every step of Gram-Schmidt waits for a dot of the one before.

All threads make the products of a dot, which are exact, and eight threads add them in the order of ``sum_magnitudes``. Everything
a column's element goes through is done by the same thread, so that only dots need barriers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from sparse_ring.kernels.cuda.mixed import WORD, mixed, times
from sparse_ring.kernels.cuda.sum import ACCUMULATORS, combined
from sparse_ring.kernels.cuda.warp import (
    SIGN,
    THREADS,
    TILE,
    add_doubles,
    device,
    divide_doubles,
    kernel,
    multiply_doubles,
    nearest_float,
    square_root_double,
    sync,
    thread_number,
)
from sparse_ring.kernels.factors import VANISHED

INFINITY = np.inf
PASSES = 2  # over the columns before: the second one where little was left by the first
OWN, RENEWED, ZERO = range(3)  # what a column is made of, in the order of trying


@device
def _dot(factor: Any, x: Any, y: Any, rows: Any, products: Any, sums: Any) -> Any:
    """The dot of the columns that begin at x and y, for all threads; ``products`` and ``sums`` are shared."""
    thread, total = thread_number(), np.float64(0)
    for first in range(0, rows, TILE):
        here = min(rows - first, TILE)
        for i in range(thread, here, THREADS):
            products[i] = multiply_doubles(np.float64(factor[x + first + i]), np.float64(factor[y + first + i]))
        sync()
        if thread < ACCUMULATORS:
            for i in range(thread, here, ACCUMULATORS):
                total = add_doubles(total, products[i])
        sync()
    if thread < ACCUMULATORS:
        sums[thread] = total
    sync()
    return combined(sums, 0)


@device
def _scale(factor: Any, x: Any, rows: Any, least: Any, products: Any, sums: Any) -> Any:
    """Scale the column at x to norm 1; returns its squared norm before, or 0 where that is not above ``least`` and finite."""
    squares = _dot(factor, x, x, rows, products, sums)
    if not (least < squares and squares < INFINITY):
        return np.float64(0)
    part = divide_doubles(np.float64(1), square_root_double(squares))
    for i in range(thread_number(), rows, THREADS):
        factor[x + i] = nearest_float(multiply_doubles(np.float64(factor[x + i]), part))
    return squares


@device
def _take_off(factor: Any, x: Any, d: Any, rows: Any, products: Any, sums: Any) -> None:
    """Take off the column at x what lies along the one at d."""
    along = _dot(factor, d, x, rows, products, sums)
    for i in range(thread_number(), rows, THREADS):
        part = multiply_doubles(along, np.float64(factor[d + i]))
        factor[x + i] = nearest_float(add_doubles(np.float64(factor[x + i]), -part))


@device
def _renew(factor: Any, x: Any, rows: Any, column: Any) -> None:
    """Fill the column at x with ``renewed(rows, column)``."""
    start = times(column & WORD, np.int64(0x7FEB352D))
    for i in range(thread_number(), rows, THREADS):
        word = mixed((times((i + 1) & WORD, np.int64(0x9E3779B1)) + start) & WORD)
        factor[x + i] = np.float32(word - ((word & SIGN) << 1))


@device
def _is_left(factor: Any, column: Any, rows: Any, products: Any, sums: Any) -> Any:
    """Make a column orthonormal to those before; whether anything of it is left."""
    x = column * rows
    squares, passes = _scale(factor, x, rows, np.float64(0), products, sums), np.int64(0)
    while squares > 0 and passes < PASSES:
        for before in range(column):
            _take_off(factor, x, before * rows, rows, products, sums)
        squares = _scale(factor, x, rows, np.float64(VANISHED), products, sums)
        passes += PASSES if squares > 0.5 else 1
    return squares > 0


@kernel("float32[::1], int64, int64")
def make_columns_orthonormal(factor: Any, rows: Any, rank: Any) -> None:
    """Make the columns orthonormal, one after the other; ``rows`` is not 0."""
    products = cuda.shared.array(TILE, np.float64)
    sums = cuda.shared.array(ACCUMULATORS, np.float64)
    for column in range(rank):
        source, found = np.int64(OWN), False
        while not found:
            if source == RENEWED:
                _renew(factor, column * rows, rows, column)
            if source == ZERO:
                for i in range(thread_number(), rows, THREADS):
                    factor[column * rows + i] = np.float32(0)
                found = True
            else:
                found = _is_left(factor, column, rows, products, sums)
            source += np.int64(1)
