"""Steps with a closure: every evaluation is shared, and its loss is the ranks' mean."""

import pytest
import torch
from torch import nn

from sparse_ring.optimizer import DistributedOptimizer
from sparse_ring.recipe import Dense, GradSA, TopK
from tests.helpers import run_ranks
from tests.optimizer.models import distance, flat, loss_of, model_of

GRADSA = GradSA(density=1.0, minimum_elements=10)
RECIPES = [Dense(), TopK(density=1.0, values="float32", minimum_elements=10), GRADSA]

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.05),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.05),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.05),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05),
    "lbfgs": lambda p: torch.optim.LBFGS(p, lr=0.5, max_iter=4, line_search_fn="strong_wolfe"),
}


@pytest.mark.parametrize("recipe", RECIPES, ids=["dense", "topk", "gradsa"])
@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_a_closure_equals_one_process_on_the_union_batch(name, recipe):
    """LBFGS evaluates several times a step and decides by the loss. Messages are float32, so those are compared in it."""
    dtype = torch.float64 if isinstance(recipe, Dense) else torch.float32

    def job(session):
        model = model_of(dtype=dtype)
        optimizer = OPTIMIZERS[name](model.parameters())
        rank, size = (0, 1) if session is None else (session.rank, session.size)
        if session is not None:
            optimizer = DistributedOptimizer(optimizer, model.named_parameters(), recipe, session=session)
        losses = []
        for step in range(3 if name == "lbfgs" else 8):

            def closure(step=step):
                optimizer.zero_grad()
                loss = loss_of(model, step, rank, size, dtype)
                loss.backward()
                return loss

            losses.append(float(optimizer.step(closure).detach()))
        return model, losses

    (first, losses), (second, other) = run_ranks(2, job)
    alone, expected = job(None)
    assert torch.equal(flat(first), flat(second))
    assert losses == other == pytest.approx(expected, rel=1e-4)
    assert distance(first, alone) < (1e-9 if dtype == torch.float64 else 1e-4)


@pytest.mark.parametrize("with_closure", [False, True])
@pytest.mark.parametrize("recipe", RECIPES, ids=["dense", "topk", "gradsa"])
def test_the_momentum_of_sparse_gradients_starts_with_the_first_step(recipe, with_closure):
    """Also where a closure finds out only within ``step()`` that a recipe's momentum does not apply to them."""

    def job(session):
        table = nn.Embedding(50, 4, sparse=True)
        nn.init.constant_(table.weight, 0.5)
        optimizer = torch.optim.SGD(table.parameters(), lr=0.1, momentum=0.9)
        rank, size = (0, 1) if session is None else (session.rank, session.size)
        if session is not None:
            optimizer = DistributedOptimizer(optimizer, table.named_parameters(), recipe, session=session)
        words = torch.tensor([[3, 7], [7, 40]])[rank::size]

        def closure():
            optimizer.zero_grad()
            loss = (table(words) ** 2).sum() / (2 // size)
            loss.backward()
            return loss

        for _ in range(4):
            if with_closure:
                optimizer.step(closure)
            else:
                closure()
                optimizer.step()
        return table

    first, second = run_ranks(2, job)
    assert torch.equal(flat(first), flat(second))
    assert distance(first, job(None)) < 1e-6


@pytest.mark.parametrize("recipe", RECIPES, ids=["dense", "topk", "gradsa"])
def test_a_closure_sees_and_changes_the_users_groups(recipe):
    def job(session):
        model = model_of()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        rank, size = (0, 1) if session is None else (session.rank, session.size)
        if session is not None:
            optimizer = DistributedOptimizer(optimizer, model.named_parameters(), recipe, session=session)
        seen = []

        def closure():
            optimizer.zero_grad()
            loss = loss_of(model, len(seen), rank, size)
            loss.backward()
            seen.append([(group["momentum"], len(group["params"])) for group in optimizer.param_groups])
            optimizer.param_groups[0]["lr"] *= 0.8
            return loss

        for _ in range(6):
            optimizer.step(closure)
        return model, seen, optimizer.param_groups[0]["lr"]

    first, second = run_ranks(2, job)
    alone, seen, rate = job(None)
    assert torch.equal(flat(first[0]), flat(second[0]))
    assert first[1:] == second[1:] == (seen, rate)
    assert distance(first[0], alone) < 1e-5
