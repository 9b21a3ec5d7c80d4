"""Every recipe behind DistributedOptimizer: it learns, replicas stay equal, state goes on."""

import copy

import pytest
import torch

from sparse_ring.optimizer import DistributedOptimizer
from sparse_ring.recipe import RECIPES
from tests.helpers import run_ranks
from tests.optimizer.models import flat, loss_of, model_of

# Settings without which a recipe would do nothing to so small a model, and learning rates that are not 0.05.
SETTINGS = {"powersgd": {"rank": 2}, "onebit": {"warmup_steps": 3}, "gradsa": {"warmup_steps": 4}}
LEARNING_RATES = {"signsgd": 0.002}
STEPS = 40


def recipe_of(name):
    known = RECIPES[name].__dataclass_fields__
    general = {"minimum_elements": 100, "density": 0.2}
    return RECIPES[name](**{key: value for key, value in general.items() if key in known}, **SETTINGS.get(name, {}))


def optimizer_of(session, name, model):
    plain = torch.optim.SGD(model.parameters(), lr=LEARNING_RATES.get(name, 0.05), momentum=0.9)
    return DistributedOptimizer(plain, model.named_parameters(), compression=recipe_of(name), session=session)


def steps_of(session, model, optimizer, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        # Always the same batch: what is asked is whether gradients arrive, not whether the model generalises.
        loss_of(model, 0, session.rank, session.size).backward()
        optimizer.step()


@pytest.mark.parametrize("name", list(RECIPES))
def test_it_learns_and_replicas_stay_equal(name):
    def job(session):
        model = model_of()
        before = loss_of(model, 0).item()
        steps_of(session, model, optimizer_of(session, name, model), STEPS)
        return before, loss_of(model, 0).item(), flat(model)

    ranks = run_ranks(3, job)
    assert all(torch.equal(rank[2], ranks[0][2]) for rank in ranks)
    assert ranks[0][1] < 0.6 * ranks[0][0]


@pytest.mark.parametrize("name", list(RECIPES))
def test_a_loaded_state_goes_on_with_the_same_bits(name):
    def job(session):
        model, other = model_of(), model_of(seed=1)
        optimizer, fresh = optimizer_of(session, name, model), optimizer_of(session, name, other)
        steps_of(session, model, optimizer, 6)
        other.load_state_dict(model.state_dict())
        fresh.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        steps_of(session, model, optimizer, 6)
        steps_of(session, other, fresh, 6)
        return torch.equal(flat(model), flat(other))

    assert run_ranks(2, job) == [True, True]
