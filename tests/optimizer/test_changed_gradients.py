"""Gradients that the loop changes between backward and step, and replicas that start apart."""

import logging

import pytest
import torch
from torch import nn

from sparse_ring.optimizer import DistributedOptimizer
from sparse_ring.recipe import Dense, GradSA
from tests.helpers import run_ranks
from tests.optimizer.models import flat, loss_of, model_of, warm_up, wrapped

RECIPES = [Dense(), GradSA(density=0.2, minimum_elements=10, warmup_steps=2)]


def clip(model):
    nn.utils.clip_grad_norm_(model.parameters(), 0.01)


def replace(model):
    model[2].weight.grad = model[2].weight.grad * 0.5


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("change", [clip, replace])
def test_clipping_in_the_usual_place_is_each_ranks_own_and_keeps_replicas_equal(recipe, change):
    """The first steps show it, so nothing leaves before it is clipped."""

    def job(session, overlap):
        model = model_of()
        optimizer = wrapped(session, model, recipe, overlap=overlap)
        for step in range(6):
            optimizer.zero_grad()
            loss_of(model, step, session.rank, session.size).backward()
            change(model)
            optimizer.step()
        return flat(model)

    first, second = run_ranks(2, lambda session: job(session, True))
    asked, _ = run_ranks(2, lambda session: job(session, False))
    assert torch.equal(first, second)
    assert torch.equal(first, asked)


@pytest.mark.parametrize("change", [clip, replace])
def test_a_change_that_comes_later_is_refused_by_name(change):
    def job(session):
        model = model_of()
        optimizer = wrapped(session, model)
        warm_up(model, optimizer)
        loss_of(model, 2, session.rank, session.size).backward()
        change(model)
        said = r"gradient of parameter '\d\.\w+' was changed between backward\(\) and step\(\).*synchronize\(\).*overlap=False"
        with pytest.raises(RuntimeError, match=said):
            optimizer.step()

    run_ranks(2, job)


def test_clipping_after_synchronize_is_no_change():
    def job(session):
        model = model_of()
        optimizer = wrapped(session, model)
        for step in range(4):
            optimizer.zero_grad()
            loss_of(model, step, session.rank, session.size).backward()
            optimizer.synchronize()
            clip(model)
            with optimizer.skip_synchronize():
                optimizer.step()
        assert optimizer._reducer.overlap.early
        return flat(model)

    first, second = run_ranks(2, job)
    assert torch.equal(first, second)


@pytest.mark.parametrize("equal", [True, False])
def test_replicas_that_start_apart_are_told(caplog, equal):
    def job(session):
        model = model_of(seed=0 if equal else session.rank)
        optimizer = wrapped(session, model)
        loss_of(model, 0).backward()
        optimizer.step()

    with caplog.at_level(logging.WARNING, "sparse_ring"):
        run_ranks(2, job)
    said = [
        message for message in caplog.messages if "Parameters differ between ranks before the first step" in message
    ]
    assert len(said) == (0 if equal else 1)
    assert all("broadcast_parameters(model.state_dict(), root_rank=0)" in message for message in said)


@pytest.mark.parametrize(
    ("compression", "said"),
    [
        (GradSA, "compression is the class GradSA, but must be a recipe, such as GradSA"),
        (3, "compression is 3, but must be a recipe"),
    ],
)
def test_what_is_no_recipe_is_told(compression, said):
    def job(session):
        optimizer = torch.optim.SGD(model_of().parameters(), lr=0.1)
        with pytest.raises(ValueError, match=said):
            DistributedOptimizer(optimizer, compression=compression, session=session)

    run_ranks(1, job)
