"""The part of guard_page.py for products with skinny factors: each argument in turn ends where memory ends."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sparse_ring.kernels.base import Bytes, Kernels

SHAPES = [(1, 1, 1), (3, 5, 2), (4, 16, 4), (9, 33, 7), (5, 2049, 3)]


def multiply_at_the_end(kernels: Kernels, at_the_end: Callable[[Bytes], Bytes]) -> None:
    """Call every kernel once for each array argument, which lies right before forbidden memory, outputs as well."""
    for rows, columns, rank in SHAPES:
        left, right, matrix = rows * rank, columns * rank, rows * columns
        shape = (rows, columns, rank)
        for guarded in range(4):

            def array(number: int, size: int, guarded: int = guarded) -> np.ndarray:
                plain = np.ones(size, np.float32)
                return at_the_end(plain.view(np.uint8)).view(np.float32) if number == guarded else plain

            kernels.skinny_right(array(0, matrix), *shape, array(1, right), array(2, left))
            kernels.skinny_left(array(0, matrix), *shape, array(1, left), array(2, right))
            kernels.skinny_outer(array(0, left), array(1, right), *shape, array(2, matrix), array(3, matrix))
            kernels.orthonormalise(array(0, left), rows, rank)
