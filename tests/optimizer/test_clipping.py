"""Clipping on both sides of the exchange, compared with one process that does the same to the ranks' gradients."""

import pytest
import torch
from torch import nn

from sparse_ring.ops import Average, Sum
from sparse_ring.optimizer import DistributedOptimizer
from sparse_ring.recipe import Dense, GradSA, TopK
from tests.helpers import run_ranks
from tests.optimizer.models import distance, flat, loss_of, model_of

SIZE, STEPS, LIMIT = 2, 6, 0.05
GRADSA = GradSA(density=1.0, minimum_elements=10)
RECIPES = [Dense(), TopK(density=1.0, values="float32", minimum_elements=10)]


def sgd(model, momentum=0.9):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum, weight_decay=0.05)


def clip(model):
    return float(nn.utils.clip_grad_norm_(model.parameters(), LIMIT))


def alone(local_from=STEPS, shared=False, momentum=0.9, parts=SIZE):
    """One process: each rank's gradients clipped from a step on, then added and divided by ``parts``, then clipped."""
    model = model_of()
    optimizer = sgd(model, momentum)
    for step in range(STEPS):
        mean = [torch.zeros_like(parameter) for parameter in model.parameters()]
        for rank in range(SIZE):
            optimizer.zero_grad()
            loss_of(model, step, rank, SIZE).backward()
            if step >= local_from:
                clip(model)
            for total, parameter in zip(mean, model.parameters(), strict=True):
                total += parameter.grad / parts
        for total, parameter in zip(mean, model.parameters(), strict=True):
            parameter.grad = total
        if shared:
            clip(model)
        optimizer.step()
    return model


@pytest.mark.parametrize("recipe", [*RECIPES, GRADSA], ids=["dense", "topk", "gradsa"])
@pytest.mark.parametrize(("start", "overlap"), [(0, True), (0, False), (4, False)])
def test_what_is_clipped_before_the_step_is_what_is_shared(recipe, start, overlap):
    """Without overlap also where it begins late, when gradients would leave during backward."""

    def job(session):
        model = model_of()
        optimizer = DistributedOptimizer(sgd(model), model.named_parameters(), recipe, overlap=overlap, session=session)
        for step in range(STEPS):
            optimizer.zero_grad()
            loss_of(model, step, session.rank, session.size).backward()
            if step >= start:
                assert clip(model) > LIMIT
            optimizer.step()
        return model

    first, second = run_ranks(SIZE, job)
    assert torch.equal(flat(first), flat(second))
    assert distance(first, alone(local_from=start)) < 1e-5


@pytest.mark.parametrize("op", [Average, Sum], ids=["average", "sum"])
@pytest.mark.parametrize(
    ("recipe", "momentum"), [(RECIPES[0], 0.9), (RECIPES[1], 0.9), (GRADSA, 0.0)], ids=["dense", "topk", "gradsa"]
)
def test_what_is_clipped_after_synchronize_is_what_the_optimizer_uses(recipe, momentum, op):
    """Shared once, not twice, as a sum tells; weight decay comes after clipping, as in torch.

    GradSA shares velocities, so it is compared without momentum.
    """

    def job(session):
        model = model_of()
        optimizer = DistributedOptimizer(sgd(model, momentum), model.named_parameters(), recipe, op=op, session=session)
        norms = []
        for step in range(STEPS):
            optimizer.zero_grad()
            loss_of(model, step, session.rank, session.size).backward()
            optimizer.synchronize()
            norms.append(clip(model))
            with optimizer.skip_synchronize():
                optimizer.step()
        assert min(norms) > LIMIT
        return model, norms

    (first, norms), (second, other) = run_ranks(SIZE, job)
    assert norms == other
    assert torch.equal(flat(first), flat(second))
    assert distance(first, alone(shared=True, momentum=momentum, parts=SIZE if op == Average else 1)) < 1e-5
