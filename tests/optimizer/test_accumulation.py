"""What lies in ``.grad`` when ``step()`` comes: accumulated passes, leftovers, zeros and None."""

import pytest
import torch
from torch import nn

from sparse_ring.optimizer import DistributedOptimizer
from sparse_ring.recipe import Dense, GradSA, TopK
from tests.helpers import run_ranks
from tests.optimizer.models import distance, flat, loss_of, model_of

SIZE, PASSES = 2, 3
RECIPES = [
    Dense(),
    TopK(density=1.0, values="float32", minimum_elements=10),
    GradSA(density=1.0, minimum_elements=10),
]
IDS = ["dense", "topk", "gradsa"]
# Passes of each rank in each step: leftovers on both, on one, and none at all on a rank.
COUNTS = [(3, 3), (3, 3), (3, 3), (2, 2), (3, 3), (1, 3), (3, 0), (3, 3)]


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def accumulate(model, step, rank, count):
    for part in range(count):
        loss_of(model, 10 * step + part, rank, SIZE).backward()


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("recipe", RECIPES, ids=IDS)
def test_accumulated_passes_and_leftovers_equal_one_process(recipe, later):
    """``later``: the number of passes is given by set_backward_passes_per_step()."""

    def job(session):
        model = model_of()
        optimizer = DistributedOptimizer(
            sgd(model), model.named_parameters(), recipe, 1 if later else PASSES, session=session
        )
        if later:
            optimizer.set_backward_passes_per_step(PASSES)
        for step, counts in enumerate(COUNTS):
            optimizer.zero_grad()
            accumulate(model, step, session.rank, counts[session.rank])
            # From the third step on, all passes leave during backward; leftovers wait for step().
            assert optimizer._reducer.in_flight() == (step >= 2 and counts[session.rank] == PASSES)
            optimizer.step()
        return model

    first, second = run_ranks(SIZE, job)
    alone = model_of()
    optimizer = sgd(alone)
    for step, counts in enumerate(COUNTS):
        optimizer.zero_grad()
        for rank in range(SIZE):
            accumulate(alone, step, rank, counts[rank])
        for parameter in alone.parameters():
            parameter.grad /= SIZE
        optimizer.step()
    assert torch.equal(flat(first), flat(second))
    assert distance(first, alone) < 1e-5


@pytest.mark.parametrize("dropped_at", [0, 3])
@pytest.mark.parametrize("recipe", RECIPES, ids=IDS)
def test_a_pass_that_zero_grad_drops_is_not_counted(recipe, dropped_at):
    """Also where gradients would leave with the second pass: the first of the new ones must not."""

    def job(session, drops):
        model = model_of()
        optimizer = DistributedOptimizer(sgd(model), model.named_parameters(), recipe, 2, session=session)
        for step in range(6):
            optimizer.zero_grad()
            if drops and step == dropped_at:
                loss_of(model, 99).backward()
                optimizer.zero_grad()
            accumulate(model, step, session.rank, 2)
            optimizer.step()
        return flat(model)

    first, second = run_ranks(SIZE, lambda session: job(session, True))
    expected, _ = run_ranks(SIZE, lambda session: job(session, False))
    assert torch.equal(first, second)
    assert torch.equal(first, expected)


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize("recipe", RECIPES, ids=IDS)
def test_a_parameter_out_of_use_rests_without_gradient_and_rolls_on_with_zeros(recipe, set_to_none):
    """As torch's momentum does: None skips the parameter, zeros let it coast."""

    def job(session):
        model = nn.ModuleDict({"always": model_of(), "sometimes": model_of(seed=1)})
        before = flat(model)
        optimizer = sgd(model)
        rank, size = (0, 1) if session is None else (session.rank, session.size)
        if session is not None:
            optimizer = DistributedOptimizer(optimizer, model.named_parameters(), recipe, session=session)
        rested = []
        for step in range(9):
            optimizer.zero_grad(set_to_none=set_to_none)
            loss = loss_of(model["always"], step, rank, size)
            if step < 4 or step > 6:
                loss = loss + loss_of(model["sometimes"], step, rank, size)
            loss.backward()
            at = flat(model["sometimes"])
            optimizer.step()
            rested.append(torch.equal(at, flat(model["sometimes"])))
        assert not torch.equal(before, flat(model))
        return model, rested

    (first, rested), (second, _) = run_ranks(SIZE, job)
    alone, expected = job(None)
    assert rested == expected == [set_to_none and 4 <= step <= 6 for step in range(9)]
    assert torch.equal(flat(first), flat(second))
    assert distance(first, alone) < 1e-5


def test_a_parameter_that_is_unfrozen_later_leaves_during_backward_as_the_others_do():
    """So a change that comes too late is told by its name; before, the step shares it."""

    def job(session):
        model = model_of()
        model[0].requires_grad_(False)
        optimizer = DistributedOptimizer(sgd(model), model.named_parameters(), session=session)
        for step in range(4):
            if step == 2:
                model[0].requires_grad_(True)
            optimizer.zero_grad()
            loss_of(model, step, session.rank, session.size).backward()
            if step < 3:
                optimizer.step()
        model[0].weight.grad.mul_(0.5)
        with pytest.raises(RuntimeError, match=r"gradient of parameter '0\.weight' was changed between backward"):
            optimizer.step()

    run_ranks(SIZE, job)


@pytest.mark.parametrize("recipe", RECIPES, ids=IDS)
def test_unfreezing_later_equals_one_process(recipe):
    def job(session):
        model = model_of()
        model[0].requires_grad_(False)
        optimizer = sgd(model)
        rank, size = (0, 1) if session is None else (session.rank, session.size)
        if session is not None:
            optimizer = DistributedOptimizer(optimizer, model.named_parameters(), recipe, session=session)
        for step in range(8):
            if step == 4:
                model[0].requires_grad_(True)
            optimizer.zero_grad()
            loss_of(model, step, rank, size).backward()
            optimizer.step()
        return model

    first, second = run_ranks(SIZE, job)
    assert torch.equal(flat(first), flat(second))
    assert distance(first, job(None)) < 1e-5
