"""A gradient that is not finite on one rank: named, left out, nothing of it kept; dense recipes pass it on as torch does."""

import logging

import pytest
import torch

from sparse_ring.optimizer import DistributedOptimizer
from sparse_ring.recipe import Dense, GradSA, TopK
from tests.helpers import run_ranks
from tests.optimizer.models import distance, flat, loss_of, model_of

SIZE, STEPS, BAD_STEP, BAD_RANK = 2, 6, 3, 1


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)


def poison(model, rank, step):
    if (rank, step) == (BAD_RANK, BAD_STEP):
        model[0].weight.grad[1, 1] = torch.nan
        model[2].bias.grad[0] = torch.inf


def train(session, recipe):
    """Return the model and, for the bad step, what ``state_dict()`` holds of the exchange before and after."""
    model = model_of()
    optimizer = DistributedOptimizer(sgd(model), model.named_parameters(), recipe, overlap=False, session=session)
    states = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, step, session.rank, session.size).backward()
        poison(model, session.rank, step)
        if step in (BAD_STEP, BAD_STEP + 1):
            states.append(optimizer.state_dict()["sparse_ring"]["parameters"])
        optimizer.step()
    return model, states


def test_its_share_is_left_out_and_nothing_else(caplog):
    """Everything is sent at once, so one process can do the same: the mean over ranks, one of which gives zeros for a parameter."""
    recipe = TopK(density=1.0, values="float32", minimum_elements=10)
    with caplog.at_level(logging.WARNING, "sparse_ring"):
        (first, _), (second, _) = run_ranks(SIZE, lambda session: train(session, recipe))
    alone = model_of()
    optimizer = sgd(alone)
    for step in range(STEPS):
        mean = [torch.zeros_like(parameter) for parameter in alone.parameters()]
        for rank in range(SIZE):
            optimizer.zero_grad()
            loss_of(alone, step, rank, SIZE).backward()
            poison(alone, rank, step)
            for total, parameter in zip(mean, alone.parameters(), strict=True):
                if parameter.grad.isfinite().all():
                    total += parameter.grad / SIZE
        for total, parameter in zip(mean, alone.parameters(), strict=True):
            parameter.grad = total
        optimizer.step()
    assert torch.equal(flat(first), flat(second))
    assert distance(first, alone) < 1e-5
    said = [message for message in caplog.messages if "not finite" in message]
    assert len(said) == SIZE
    assert all(f"Step {BAD_STEP}: the gradient of rank {BAD_RANK} is not finite for" in message for message in said)
    assert all("'0.weight'" in message and "'2.bias'" in message for message in said)
    assert not any("'0.bias'" in message or "'2.weight'" in message for message in said)


@pytest.mark.parametrize("kind", [TopK, lambda **settings: GradSA(warmup_steps=0, **settings)], ids=["topk", "gradsa"])
def test_the_rank_keeps_what_it_had_and_the_others_go_on(kind):
    recipe = kind(density=0.2, minimum_elements=10)
    (first, (others_before, others_after)), (second, (before, after)) = run_ranks(
        SIZE, lambda session: train(session, recipe)
    )
    assert torch.equal(flat(first), flat(second))
    assert flat(first).isfinite().all()
    kept = [key for key in ("residual", "velocity") if key in before["0.weight"]]
    assert kept
    for key in kept:
        assert before["0.weight"][key].any()
        assert torch.equal(before["0.weight"][key], after["0.weight"][key])
        # The same rank's other parameters and the other rank's are taken in as always.
        assert not torch.equal(before["2.weight"][key], after["2.weight"][key])
        assert not torch.equal(others_before["0.weight"][key], others_after["0.weight"][key])


def test_a_dense_recipe_passes_it_on_to_all_ranks():
    (first, _), (second, _) = run_ranks(SIZE, lambda session: train(session, Dense()))
    for model in (first, second):
        assert model[0].weight.isnan().sum() > 0
        assert model[2].weight.isnan().any()
    torch.testing.assert_close(flat(first), flat(second), rtol=0, atol=0, equal_nan=True)


def test_a_run_of_them_is_told_ever_more_rarely(caplog):
    """The 1st, 2nd, 4th, 8th time: a loss that is gone fills no disk."""

    def job(session):
        model = model_of()
        optimizer = DistributedOptimizer(
            sgd(model), model.named_parameters(), TopK(density=0.2, minimum_elements=10), overlap=False, session=session
        )
        for step in range(9):
            optimizer.zero_grad()
            loss_of(model, step, session.rank, session.size).backward()
            poison(model, session.rank, BAD_STEP if session.rank == BAD_RANK else step)
            optimizer.step()

    with caplog.at_level(logging.WARNING, "sparse_ring"):
        run_ranks(SIZE, job)
    said = [message for message in caplog.messages if "not finite" in message]
    for time in (1, 2, 4, 8):
        assert sum(f"(time {time})" in message for message in said) == SIZE
    assert len(said) == 4 * SIZE
