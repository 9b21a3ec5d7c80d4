"""Copies of a distributed optimizer train by themselves, on one rank, with the model that was copied along."""

import copy

import pytest
import torch

from sparse_ring.optimizer import DistributedOptimizer
from sparse_ring.recipe import Dense, TopK
from tests.helpers import run_ranks
from tests.optimizer.models import flat, loss_of, model_of

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "lbfgs": lambda p: torch.optim.LBFGS(p, lr=0.5, max_iter=3),
}


def train(model, optimizer, steps):
    """Equal batches on all ranks, so that their mean is each one's."""
    for step in steps:

        def closure(step=step):
            optimizer.zero_grad()
            loss = loss_of(model, step)
            loss.backward()
            return loss

        optimizer.step(closure)


@pytest.mark.parametrize("scheduled", [None, "before", "after"])
@pytest.mark.parametrize("recipe", [Dense(), TopK(density=1.0, values="float32", minimum_elements=10)])
@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_a_copy_of_model_and_optimizer_goes_on_alone(name, recipe, scheduled):
    """A copy that took part in the exchange would wait here: the other rank makes none. A scheduler put ``step`` on the object."""

    def job(session):
        model = model_of()
        optimizer = OPTIMIZERS[name](model.parameters())
        if scheduled == "before":
            torch.optim.lr_scheduler.StepLR(optimizer, 100)
        if session is not None:
            optimizer = DistributedOptimizer(optimizer, model.named_parameters(), recipe, session=session)
        if scheduled == "after":
            torch.optim.lr_scheduler.StepLR(optimizer, 100)
        train(model, optimizer, range(3))
        kept = flat(model)
        if session is not None and session.rank == 0:
            twin, alone = copy.deepcopy((model, optimizer))
            assert type(alone) is OPTIMIZERS[name](twin.parameters()).__class__
            train(twin, alone, range(3, 6))
            assert torch.equal(flat(model), kept)
        else:
            twin = None
        train(model, optimizer, range(3, 6))
        return flat(model), None if twin is None else flat(twin)

    (first, twin), (second, _) = run_ranks(2, job)
    assert torch.equal(first, second)
    torch.testing.assert_close(twin, job(None)[0], rtol=1e-5, atol=1e-6)
