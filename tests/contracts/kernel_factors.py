"""What products with skinny factors must do: sums in their order, worked out by hand, and properties; native bits against NumPy's.

Subclasses run under a module-scoped fixture ``kernels`` or ``native``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparse_ring.kernels.base import Floats, Kernels
from sparse_ring.kernels.factors import VANISHED, renewed
from sparse_ring.kernels.reference.kernels import ReferenceKernels
from tests.contracts.kernel_cases import assert_same_bits, examples, floats, guarded, seeds

REFERENCE = ReferenceKernels()
HUGE = 2.0**25  # in float32, swallows a 1 that is added to it, and a 2
CHUNK = 2048  # columns that the native kernels take together
ranks = st.sampled_from([1, 2, 3, 4, 5, 6, 7, 8, 11, 65])
heights = st.integers(0, 20)
widths = st.one_of(st.integers(0, 80), st.sampled_from([127, 128, 129, 300]))


def f32(*values: float) -> Floats:
    return np.array(values, dtype=np.float32)


def normal(seed: int, *shape: int) -> Floats:
    """Standard normal values of that shape."""
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def product_of_columns(factor: Floats, rows: int, rank: int) -> np.ndarray:
    """All dots of a factor's columns, in float64."""
    columns = factor.reshape(rank, rows).astype(np.float64)
    return columns @ columns.T


def assert_orthonormal(factor: Floats, rows: int, rank: int) -> None:
    assert np.abs(product_of_columns(factor, rows, rank) - np.eye(rank)).max() < 1e-6


class FactorContract:
    """Products and orthonormal columns, for one implementation."""

    @pytest.mark.parametrize("rank", range(1, 8))
    def test_dots_follow_their_accumulators_and_tree(self, kernels: Kernels, rank: int) -> None:
        rows = 9
        for columns, expected in ((16, HUGE + 12), (33, 30.0)):
            # Within an accumulator the huge one comes first and, of 33 columns, last; else it meets 1, 2, 4 and 8 of the tree.
            row = np.ones(columns, np.float32)
            row[0] = HUGE
            row[32:] = -HUGE
            out, check = guarded(rows * rank, np.float32)
            kernels.skinny_right(np.tile(row, rows), rows, columns, rank, np.ones(columns * rank, np.float32), out)
            assert_same_bits(out, np.full(rows * rank, expected, np.float32))
            check()

    @pytest.mark.parametrize("rank", range(1, 8))
    def test_rows_are_added_in_order(self, kernels: Kernels, rank: int) -> None:
        for rows_of, expected in (([HUGE, 1, -HUGE], 0.0), ([HUGE, -HUGE, 1], 1.0), ([1] * 8 + [HUGE, 1, -HUGE], 8.0)):
            rows, columns = len(rows_of), 37
            matrix = np.repeat(f32(*rows_of), columns)
            out, check = guarded(columns * rank, np.float32)
            kernels.skinny_left(matrix, rows, columns, rank, np.ones(rows * rank, np.float32), out)
            assert_same_bits(out, np.full(columns * rank, expected, np.float32))
            check()

    def test_outer_adds_its_columns_in_order_and_takes_them_off(self, kernels: Kernels) -> None:
        rows, columns = 3, 101
        for terms, expected in (([HUGE, 1, -HUGE], 0.0), ([HUGE, -HUGE, 1], 1.0), ([-0.0], -0.0)):
            left, right = np.repeat(f32(*terms), rows), np.ones(columns * len(terms), np.float32)
            residual, check_residual = guarded(rows * columns, np.float32)
            out, check_out = guarded(rows * columns, np.float32)
            residual[:] = 5
            kernels.skinny_outer(left, right, rows, columns, len(terms), residual, out)
            assert_same_bits(out, np.full(rows * columns, expected, np.float32))
            assert_same_bits(residual, np.full(rows * columns, 5 - expected, np.float32))
            check_residual()
            check_out()

    @pytest.mark.parametrize("rank", [1, 2, 4])
    def test_each_operation_is_rounded_once(self, kernels: Kernels, rank: int) -> None:
        # (1 + 2^-12)^2 needs one more bit than float32 has: a fused multiply-add would leave 2^-24.
        near_one, square = 1 + 2.0**-12, 1 + 2.0**-11
        matrix, factor = np.zeros(4 * 32, np.float32), np.ones(32 * rank, np.float32)
        matrix.reshape(4, 32)[:, 0], matrix.reshape(4, 32)[:, 16] = -square, near_one
        factor.reshape(rank, 32)[:, 16] = near_one
        out = np.ones(4 * rank, np.float32)
        kernels.skinny_right(matrix, 4, 32, rank, factor, out)
        assert_same_bits(out, np.zeros(4 * rank, np.float32))
        out = np.ones(40 * rank, np.float32)
        kernels.skinny_left(np.repeat(f32(-square, near_one), 40), 2, 40, rank, np.tile(f32(1, near_one), rank), out)
        assert_same_bits(out, np.zeros(40 * rank, np.float32))
        out, residual = np.ones(40, np.float32), np.ones(40, np.float32)
        kernels.skinny_outer(f32(-square, near_one), np.repeat(f32(1, near_one), 40), 1, 40, 2, residual, out)
        assert_same_bits(out, np.zeros(40, np.float32))

    @examples
    @given(rows=heights, columns=widths, rank=ranks, seed=seeds)
    def test_products_are_those_of_matrices(
        self, kernels: Kernels, rows: int, columns: int, rank: int, seed: int
    ) -> None:
        matrix, left, right = normal(seed, rows, columns), normal(seed + 1, rank, rows), normal(seed + 2, rank, columns)
        out, check = guarded(rows * rank, np.float32)
        kernels.skinny_right(matrix.reshape(-1), rows, columns, rank, right.reshape(-1), out)
        exact = right.astype(np.float64) @ matrix.T
        np.testing.assert_allclose(out.reshape(rank, rows), exact, rtol=0, atol=1e-6 * (columns + 1))
        check()
        out, check = guarded(columns * rank, np.float32)
        kernels.skinny_left(matrix.reshape(-1), rows, columns, rank, left.reshape(-1), out)
        exact = left.astype(np.float64) @ matrix
        np.testing.assert_allclose(out.reshape(rank, columns), exact, rtol=0, atol=1e-6 * (rows + 1))
        check()
        residual, out = matrix.reshape(-1).copy(), np.zeros(rows * columns, np.float32)
        kernels.skinny_outer(left.reshape(-1), right.reshape(-1), rows, columns, rank, residual, out)
        exact = left.T.astype(np.float64) @ right
        np.testing.assert_allclose(out.reshape(rows, columns), exact, rtol=0, atol=2e-6 * (rank + 1))
        assert_same_bits(residual, matrix.reshape(-1) - out)

    @pytest.mark.parametrize("rank", [3, 4, 8])
    def test_a_matrix_of_few_directions_is_sent_whole(self, kernels: Kernels, rank: int) -> None:
        """One round of power iteration from anywhere finds a matrix of rank 3, and leaves next to nothing for the residual."""
        rows, columns = 60, 250
        matrix = (normal(1, rows, 3) @ normal(2, 3, columns)).reshape(-1)
        left, right = np.zeros(rows * rank, np.float32), normal(3, columns * rank)
        residual, out = matrix.copy(), np.zeros_like(matrix)
        kernels.skinny_right(matrix, rows, columns, rank, right, left)
        kernels.orthonormalise(left, rows, rank)
        kernels.skinny_left(matrix, rows, columns, rank, left, right)
        kernels.skinny_outer(left, right, rows, columns, rank, residual, out)
        assert np.linalg.norm(residual) < 2e-6 * np.linalg.norm(matrix)

    @examples
    @given(rows=st.integers(1, 300), rank=st.sampled_from([1, 2, 4, 9, 32]), seed=seeds)
    def test_columns_become_orthonormal_and_span_the_same(
        self, kernels: Kernels, rows: int, rank: int, seed: int
    ) -> None:
        rank = min(rank, rows)
        before = normal(seed, rank * rows)
        factor, check = guarded(rows * rank, np.float32)
        factor[:] = before
        kernels.orthonormalise(factor, rows, rank)
        assert_orthonormal(factor, rows, rank)
        check()
        basis, spanned = factor.reshape(rank, rows).astype(np.float64), before.reshape(rank, rows).astype(np.float64)
        assert np.abs(spanned - spanned @ basis.T @ basis).max() < 1e-5
        assert spanned[0] @ basis[0] > 0

    @pytest.mark.parametrize("distance", [1.0, 1e-2, 1e-4, 1e-6, 0.0])
    @pytest.mark.parametrize("size", [1e-42, 1e-20, 1.0, 3e37])
    def test_columns_that_nearly_agree_become_orthonormal(self, kernels: Kernels, distance: float, size: float) -> None:
        factor = normal(4, 1000) + distance * normal(5, 5, 1000)
        factor = (factor * size).astype(np.float32).reshape(-1)
        kernels.orthonormalise(factor, 1000, 5)
        assert_orthonormal(factor, 1000, 5)

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 0.0])
    @pytest.mark.parametrize("at", [0, 1, 3])
    def test_a_column_that_vanished_is_renewed(self, kernels: Kernels, bad: float, at: int) -> None:
        """Otherwise the rank would be lost for all later steps, as Q of a zero column is zero."""
        factor = normal(6, 4, 50)
        factor[at] = 0
        factor[at, 17] = bad
        expected = factor.copy()
        expected[at] = renewed(50, at)
        for one in (factor, expected):
            kernels.orthonormalise(one.reshape(-1), 50, 4)
        assert_orthonormal(factor.reshape(-1), 50, 4)
        assert_same_bits(factor, expected)

    def test_a_factor_of_zeros_comes_back(self, kernels: Kernels) -> None:
        factor = np.zeros(4 * 100, np.float32)
        kernels.orthonormalise(factor, 100, 4)
        assert_orthonormal(factor, 100, 4)
        assert np.count_nonzero(factor) == len(factor)

    @pytest.mark.parametrize("rows", [0, 1, 2, 5])
    def test_columns_beyond_the_rows_are_zero(self, kernels: Kernels, rows: int) -> None:
        factor = normal(7, 8 * rows)
        kernels.orthonormalise(factor, rows, 8)
        if rows:
            assert_orthonormal(factor[: rows * rows], rows, rows)
        assert_same_bits(factor[rows * rows :], np.zeros((8 - rows) * rows, np.float32))

    @pytest.mark.parametrize("side", [0.7, 1.4])
    def test_what_rounding_may_have_left_has_vanished(self, kernels: Kernels, side: float) -> None:
        factor = np.zeros((2, 20), np.float32)
        factor[:, 0], factor[1, 1] = 1, side * VANISHED**0.5
        kernels.orthonormalise(factor.reshape(-1), 20, 2)
        assert_orthonormal(factor.reshape(-1), 20, 2)
        assert (np.count_nonzero(factor[1]) == 1) == (side > 1)


class FactorTwinContract:
    """Native implementations against the reference: the same bits, whatever the shape, the place in memory and the values."""

    @examples
    @given(rows=heights, columns=widths, rank=ranks, seed=seeds, offset=st.integers(0, 16))
    def test_products(self, native: Kernels, rows: int, columns: int, rank: int, seed: int, offset: int) -> None:
        compare_products(native, rows, columns, rank, seed, offset)

    @pytest.mark.parametrize("rank", [1, 2, 3, 4, 6, 7, 70])
    @pytest.mark.parametrize("columns", [CHUNK - 1, CHUNK, 2 * CHUNK + 17])
    def test_products_of_wide_matrices(self, native: Kernels, rank: int, columns: int) -> None:
        compare_products(native, 11, columns, rank, seed=2, offset=3)

    @examples
    @given(rows=st.integers(0, 70), rank=st.sampled_from([1, 2, 3, 4, 9, 20]), seed=seeds, again=st.booleans())
    def test_orthonormalise(self, native: Kernels, rows: int, rank: int, seed: int, again: bool) -> None:
        results = []
        for kernels in (native, REFERENCE):
            factor = floats(rows * rank, seed)
            if again and rank > 1:  # the second column is the first
                factor[rows : 2 * rows] = factor[:rows]
            kernels.orthonormalise(factor, rows, rank)
            results.append(factor)
        assert np.isfinite(results[0]).all()
        assert_same_bits(*results)


def compare_products(native: Kernels, rows: int, columns: int, rank: int, seed: int, offset: int) -> None:
    """All three products by both implementations, of values that lie so many elements past an allocation's begin."""

    def placed(size: int, key: int) -> Floats:
        place: Floats = np.zeros(size + offset, np.float32)[offset:]
        place[:] = floats(size, seed ^ key)
        return place

    results: list[list[Any]] = []
    for kernels in (native, REFERENCE):
        matrix, left, right = placed(rows * columns, 0), placed(rows * rank, 2), placed(columns * rank, 4)
        made_left, made_right, out = (placed(len(x), 8) for x in (left, right, matrix))
        kernels.skinny_right(matrix, rows, columns, rank, right, made_left)
        kernels.skinny_left(matrix, rows, columns, rank, left, made_right)
        kernels.skinny_outer(left, right, rows, columns, rank, matrix, out)
        results.append([made_left, made_right, matrix, out])
    for actual, expected in zip(*results, strict=True):
        assert_same_bits(actual, expected)
