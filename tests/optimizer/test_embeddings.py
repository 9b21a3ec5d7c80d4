"""Sparse embedding gradients: merged, exchanged as rows or densely, absent on some ranks, with the optimizer's own momentum."""

import numpy as np
import pytest
import torch
from torch import nn

from sparse_ring.errors import MismatchError
from sparse_ring.exchange.rows import RowGradient, Rows, merged
from sparse_ring.optimizer import DistributedOptimizer
from sparse_ring.recipe import BF16, Dense, GradSA, TopK
from tests.helpers import run_ranks

ROWS, WIDTH = 50, 4
RECIPES = [Dense(), BF16(), TopK(density=0.1, minimum_elements=10), GradSA(density=0.1, minimum_elements=10)]
WORDS = [[3, 3, 7], [7, 40], [0], []]


def embedding_of(dtype=torch.float32):
    table = nn.Embedding(ROWS, WIDTH, sparse=True, dtype=dtype)
    with torch.no_grad():
        table.weight.copy_(torch.arange(ROWS * WIDTH).view(ROWS, WIDTH) / 100)
    return table


def train(session, recipe, words, optimizer=None, dtype=torch.float32, steps=3):
    table = embedding_of(dtype)
    inner = (optimizer or (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.5)))(table.parameters())
    outer = DistributedOptimizer(inner, table.named_parameters(), recipe, session=session)
    for _ in range(steps):
        outer.zero_grad()
        mine = words[session.rank]
        if mine:
            (table(torch.tensor(mine)) ** 2).sum().backward()
        outer.step()
    return table.weight.detach(), table.weight.grad


def alone(words, size, steps=3):
    """One process: the mean over ranks of the same losses."""
    table = embedding_of()
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1, momentum=0.5)
    for _ in range(steps):
        optimizer.zero_grad()
        (sum((table(torch.tensor(mine)) ** 2).sum() for mine in words[:size] if mine) / size).backward()
        optimizer.step()
    return table.weight.detach()


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("recipe", RECIPES)
def test_rows_equal_one_process_whatever_the_recipe(size, recipe):
    """Also with a rank that has no gradient at all (the fourth)."""
    ranks = run_ranks(size, lambda session: train(session, recipe, WORDS))
    for weight, gradient in ranks:
        assert gradient.is_sparse
        assert gradient.is_coalesced()
        assert torch.equal(weight, ranks[0][0])
    assert torch.allclose(ranks[0][0], alone(WORDS, size), rtol=1e-6, atol=0)


def test_only_touched_rows_travel():
    (_, gradient), _ = run_ranks(2, lambda session: train(session, Dense(), WORDS))
    assert gradient._indices().tolist() == [[3, 7, 40]]


def test_many_rows_travel_densely_with_the_same_result():
    everything = [list(range(ROWS)) * 2, list(range(0, ROWS, 2)), list(range(ROWS))]

    def job(session):
        before = session.metrics.sent_bytes
        weight, gradient = train(session, Dense(), everything)
        return weight, gradient, session.metrics.sent_bytes - before

    ranks = run_ranks(3, job)
    assert torch.allclose(ranks[0][0], alone(everything, 3), rtol=1e-5, atol=0)
    assert all(torch.equal(weight, ranks[0][0]) for weight, _, _ in ranks)
    assert ranks[0][1]._indices().shape == (1, ROWS)
    # Three steps of a dense ring on three ranks: 2 * 2/3 of the table each, beside the agreement's own data.
    assert ranks[0][2] == pytest.approx(3 * 2 * 2 / 3 * 4 * ROWS * WIDTH, rel=0.05)


def test_sparse_adam_works():
    ranks = run_ranks(2, lambda session: train(session, Dense(), WORDS, lambda p: torch.optim.SparseAdam(list(p))))
    assert torch.equal(ranks[0][0], ranks[1][0])
    assert not torch.equal(ranks[0][0], embedding_of().weight)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("recipe", [Dense(), TopK(minimum_elements=10)])
def test_other_dtypes(dtype, recipe):
    words = [[3], [], [3, 9]]
    ranks = run_ranks(3, lambda session: train(session, recipe, words, dtype=dtype))
    assert all(torch.equal(weight, ranks[0][0]) for weight, _ in ranks)
    assert ranks[0][1].dtype == dtype
    assert ranks[1][1]._indices().tolist() == [[3, 9]]


def test_dense_on_one_rank_and_sparse_on_another_is_told_on_both():
    def job(session):
        table = nn.Embedding(ROWS, WIDTH, sparse=session.rank == 0)
        optimizer = DistributedOptimizer(
            torch.optim.SGD(table.parameters(), lr=0.1), table.named_parameters(), session=session
        )
        table(torch.tensor([1])).sum().backward()
        with pytest.raises(
            MismatchError, match=r"'weight'.*One rank did a row gradient, but another rank did an allreduce"
        ):
            optimizer.step()

    run_ranks(2, job)


def test_more_than_one_sparse_dimension_is_refused_by_name():
    def job(session):
        parameter = nn.Parameter(torch.zeros(4, 4))
        optimizer = DistributedOptimizer(torch.optim.SGD([parameter], lr=0.1), session=session)
        parameter.grad = torch.eye(4).to_sparse()
        with pytest.raises(
            ValueError, match=r"Parameter 'parameter\.0\.0' has a sparse gradient with 2 sparse dimensions"
        ):
            optimizer.step()

    run_ranks(1, job)


def test_rows_are_merged_in_order():
    one = Rows(np.array([5, 1, 5]), np.array([[1.0], [2.0], [4.0]], np.float32))
    other = Rows(np.array([1]), np.array([[8.0]], np.float32))
    both = merged([one, other], 0.5)
    assert both.numbers.tolist() == [1, 5]
    assert both.values.tolist() == [[5.0], [2.5]]
    assert merged([Rows(np.zeros(0, np.int64), np.zeros((0, 1), np.float32))], 1.0).values.shape == (0, 1)


def test_row_numbers_from_another_rank_are_checked():
    def job(session):
        rows = Rows(np.array([1, 2]), np.ones((2, 3), np.float32))
        operation = RowGradient("t", rows, 10, average=True, exchanges=session.exchanges, dtype="float32")
        if session.rank == 1:
            operation.rows = Rows(np.array([1, 99]), np.ones((2, 3), np.float32))
        with pytest.raises(ValueError, match=r"rank 1.*row numbers are not increasing below 10"):
            session.submit(operation).wait()

    run_ranks(2, job)
