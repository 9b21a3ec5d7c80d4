"""GradScaler and bf16 autocast."""

import pytest
import torch

from sparse_ring.optimizer import DistributedOptimizer
from sparse_ring.recipe import Dense, GradSA, TopK
from tests.helpers import run_ranks
from tests.optimizer.models import distance, flat, loss_of, model_of, wrapped

RECIPES = [Dense(), TopK(density=0.2, minimum_elements=10), GradSA(density=0.2, minimum_elements=10, warmup_steps=0)]


def scaled(session, recipe, poisoned=(), unscale_first=False, steps=6):
    """Train with a GradScaler; ``poisoned``: (rank, step) at which a gradient is infinite."""
    model = model_of()
    optimizer = wrapped(session, model, recipe)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)
    states = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model, step, session.rank, session.size)
        scaler.scale(loss).backward()
        if (session.rank, step) in poisoned:
            model[0].weight.grad[0, 0] = torch.inf
        if unscale_first:
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        states.append((flat(model), optimizer.state_dict()["sparse_ring"]))
    return states


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("unscale_first", [False, True])
def test_a_scale_of_a_power_of_two_changes_no_bit(recipe, unscale_first):
    def plain(session):
        model = model_of()
        optimizer = wrapped(session, model, recipe)
        for step in range(6):
            optimizer.zero_grad()
            loss_of(model, step, session.rank, session.size).backward()
            optimizer.step()
        return flat(model)

    expected = run_ranks(2, plain)[0]
    for states in run_ranks(2, lambda session: scaled(session, recipe, unscale_first=unscale_first)):
        assert torch.equal(states[-1][0], expected)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("unscale_first", [False, True])
def test_infinity_on_one_rank_skips_the_step_on_all_and_touches_nothing(recipe, unscale_first):
    first, second = run_ranks(2, lambda session: scaled(session, recipe, {(1, 3)}, unscale_first))
    for states in (first, second):
        (before, kept), (after, same) = states[2], states[3]
        assert torch.equal(before, after)
        assert kept["step"] == same["step"] == 3
        for name, entry in kept["parameters"].items():
            for key, value in entry.items():
                other = same["parameters"][name][key]
                assert torch.equal(value, other) if isinstance(value, torch.Tensor) else value == other
    assert all(torch.equal(one[0], other[0]) for one, other in zip(first, second, strict=True))
    assert not torch.equal(first[3][0], first[5][0])


def test_a_scaler_that_comes_after_gradients_left_early_is_refused():
    def job(session):
        model = model_of()
        optimizer = wrapped(session, model)
        for step in range(3):
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()
        scaler = torch.amp.GradScaler("cpu")
        optimizer.zero_grad()
        scaler.scale(loss_of(model, 3)).backward()
        with pytest.raises(
            RuntimeError, match=r"GradScaler was used for the first time after two steps.*overlap=False"
        ):
            scaler.step(optimizer)
        optimizer.synchronize()

    run_ranks(2, job)


@pytest.mark.parametrize("recipe", RECIPES)
def test_bf16_autocast_keeps_replicas_equal(recipe):
    def job(session):
        model = model_of()
        optimizer = wrapped(session, model, recipe)
        for step in range(6):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = loss_of(model, step, session.rank, session.size)
            loss.backward()
            optimizer.step()
        return flat(model)

    first, second = run_ranks(2, job)
    assert torch.equal(first, second)
    assert not torch.equal(first, flat(model_of()))


@pytest.mark.parametrize("recipe", [Dense(), TopK(density=1.0, values="float32", minimum_elements=10)])
def test_bf16_autocast_equals_one_process_and_overlaps(recipe):
    """The forward pass is in bfloat16, the gradients are not: nothing of them is rounded, and they leave during backward."""

    def train(share, size, optimizer, model, backward):
        for step in range(6):
            optimizer.zero_grad()
            for rank in share:
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    loss = loss_of(model, step, rank, size)
                loss.backward()
            backward(step)
            optimizer.step()
        return model

    def job(session):
        model = model_of()
        optimizer = wrapped(session, model, recipe)

        def left(step):
            assert optimizer._reducer.in_flight() == (step >= 2)

        return train([session.rank], session.size, optimizer, model, left)

    def halve(step):
        for parameter in alone.parameters():
            parameter.grad /= 2

    first, second = run_ranks(2, job)
    alone = model_of()
    train(range(2), 2, torch.optim.SGD(alone.parameters(), lr=0.05, momentum=0.9), alone, halve)
    assert torch.equal(flat(first), flat(second))
    assert distance(first, alone) < 1e-6


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_a_fused_optimizer_does_not_unscale_again(recipe, kind):
    """torch hands a fused optimizer scale and flag; here they have done their work before gradients are shared."""

    def job(session, scaled):
        model = model_of()
        optimizer = kind(model.parameters(), lr=0.01, fused=True)
        optimizer = DistributedOptimizer(optimizer, model.named_parameters(), recipe, session=session)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000, enabled=scaled)
        for step in range(5):
            if step == 3 and not scaled:
                continue
            optimizer.zero_grad()
            scaler.scale(loss_of(model, step, session.rank, session.size)).backward()
            if step == 3 and session.rank == 1:
                model[0].weight.grad[0, 0] = torch.inf
            scaler.step(optimizer)
            scaler.update()
        return flat(model)

    first, second = run_ranks(2, lambda session: job(session, True))
    expected, _ = run_ranks(2, lambda session: job(session, False))
    assert torch.equal(first, second)
    assert torch.equal(first, expected)
