"""One momentum, wherever it comes from and whatever happens to it on the way; always compared with torch's own SGD."""

import copy
import logging

import pytest
import torch

from sparse_ring.functions import broadcast_optimizer_state, broadcast_parameters
from sparse_ring.optimizer import DistributedOptimizer
from sparse_ring.recipe import GradSA, TopK
from tests.helpers import run_ranks
from tests.optimizer.models import distance, flat, loss_of, model_of

GRADSA = GradSA(density=1.0, minimum_elements=10)
SPARSE = GradSA(density=0.2, minimum_elements=10, warmup_steps=4)


def sgd(model, weight_decay=1e-2, kind=torch.optim.SGD):
    return kind(model.parameters(), lr=0.05, momentum=0.9, weight_decay=weight_decay)


def distributed(session, model, optimizer, recipe=GRADSA):
    return DistributedOptimizer(optimizer, model.named_parameters(), recipe, session=session)


def train(model, optimizer, steps, session=None):
    rank, size = (0, 1) if session is None else (session.rank, session.size)
    for step in steps:
        optimizer.zero_grad()
        loss_of(model, step, rank, size).backward()
        optimizer.step()
    return model


def plain(steps, **options):
    model = model_of()
    return train(model, sgd(model, **options), range(steps))


def check(job, expected):
    models = run_ranks(2, job)
    assert torch.equal(flat(models[0]), flat(models[1]))
    assert distance(models[0], expected) < 1e-5


GLOBAL = GradSA(density=1.0, minimum_elements=10, momentum="global")


@pytest.mark.parametrize("recipe", [GRADSA, GLOBAL])
def test_an_optimizer_with_momentum_keeps_it_when_it_is_wrapped(recipe):
    def job(session):
        model = model_of()
        optimizer = sgd(model)
        train(model, optimizer, range(5))
        optimizer = distributed(session, model, optimizer, recipe)
        assert "momentum_buffer" not in optimizer.state.get(model[0].weight, {})
        return train(model, optimizer, range(5, 12), session)

    check(job, plain(12))


def test_a_recipe_without_velocity_refuses_nesterovs_momentum():
    def job(session):
        model = model_of()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
        with pytest.raises(ValueError, match=r"'0\.weight': this recipe keeps no velocity as nesterov=True needs it"):
            distributed(session, model, optimizer, GLOBAL)

    run_ranks(1, job)


@pytest.mark.parametrize("maximize", [False, True])
def test_compensation_hears_how_weights_move(maximize):
    """``-learning_rate * aggregate`` is what the step does to the weights, where momentum is not the optimizer's."""

    def job(session):
        model = model_of()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, maximize=maximize)
        recipe = GradSA(density=0.2, minimum_elements=10, warmup_steps=2, compensation="taylor")
        optimizer = distributed(session, model, optimizer, recipe)
        (record,) = [record for record in optimizer._reducer.records if record.name == "0.weight"]
        heard, feedback = [], record.pipeline.feedback
        aggregated = feedback.aggregated

        def hear(aggregate, touched, learning_rate, momentum, part):
            heard.append((-learning_rate * torch.tensor(aggregate), len(touched), momentum))
            aggregated(aggregate, touched, learning_rate, momentum, part)

        feedback.aggregated = hear
        for step in range(4):
            before = model[0].weight.detach().clone()
            train(model, optimizer, [step], session)
            moved, touched, momentum = heard[-1]
            assert torch.allclose((model[0].weight.detach() - before).reshape(-1), moved, rtol=1e-3, atol=1e-7)
            assert touched == (2 if step >= 1 else 0)
            assert momentum == 0.9
        return len(heard)

    assert run_ranks(2, job) == [4, 4]


def test_a_state_saved_under_a_recipe_without_velocity_gives_its_momentum():
    def job(session):
        model = model_of()
        first = distributed(session, model, sgd(model), TopK(density=1.0, values="float32", minimum_elements=10))
        train(model, first, range(5), session)
        second = distributed(session, model, sgd(model))
        second.load_state_dict(copy.deepcopy(first.state_dict()))
        first._reducer.close()
        return train(model, second, range(5, 12), session)

    check(job, plain(12))


def test_weight_decay_that_is_turned_off_rings_down():
    def scheduled(model, optimizer, session=None):
        for step in range(20):
            if step in (8, 14):
                optimizer.param_groups[0]["weight_decay"] = 0.0 if step == 8 else 0.05
            train(model, optimizer, [step], session)
        return model

    def job(session):
        model = model_of()
        return scheduled(model, distributed(session, model, sgd(model, 0.1)), session)

    model = model_of()
    check(job, scheduled(model, sgd(model, 0.1)))


@pytest.mark.parametrize("recipe", [GRADSA, TopK(density=0.5, minimum_elements=10)])
def test_step_hooks_see_and_change_the_users_groups(recipe):
    def job(session):
        model = model_of()
        optimizer = distributed(session, model, sgd(model), recipe)
        seen = []

        def halve(optimizer, *_):
            seen.append([(group["momentum"], len(group["params"])) for group in optimizer.param_groups])
            optimizer.param_groups[0]["lr"] /= 2

        optimizer.register_step_pre_hook(halve)
        train(model, optimizer, range(3), session)
        return seen, optimizer.param_groups[0]["lr"]

    assert run_ranks(1, job) == [([[(0.9, 4)]] * 3, 0.05 / 8)]


def test_a_subclass_with_a_step_of_its_own_keeps_its_momentum():
    class Halved(torch.optim.SGD):
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    buffer = self.state[p].setdefault("mine", torch.zeros_like(p))
                    buffer.mul_(group["momentum"] / 2).add_(p.grad)
                    p.data.add_(buffer, alpha=-group["lr"])

    def job(session):
        model = model_of()
        return train(model, distributed(session, model, sgd(model, kind=Halved)), range(8), session)

    model = model_of()
    check(job, train(model, sgd(model, kind=Halved), range(8)))


def test_rank_0_loads_a_plain_checkpoint_and_broadcasts_it():
    before = model_of()
    optimizer = sgd(before)
    train(before, optimizer, range(5))
    weights, state = before.state_dict(), optimizer.state_dict()

    def job(session):
        model = model_of(seed=session.rank)
        optimizer = distributed(session, model, sgd(model))
        if session.rank == 0:
            model.load_state_dict(copy.deepcopy(weights))
            optimizer.load_state_dict(copy.deepcopy(state))
        broadcast_parameters(model.state_dict(), 0, session=session)
        broadcast_optimizer_state(optimizer, 0, session=session)
        return train(model, optimizer, range(5, 12), session)

    check(job, plain(12))


def test_rank_0_loads_our_checkpoint_and_broadcasts_it(caplog):
    """Residuals of the other ranks are lost, and the warm-up goes on; replicas stay equal with weight decay, too."""

    def save(session):
        model = model_of()
        optimizer = distributed(session, model, sgd(model, 0.1), SPARSE)
        train(model, optimizer, range(8), session)
        return model.state_dict(), optimizer.state_dict()

    weights, state = run_ranks(2, save)[0]

    def job(session):
        model = model_of(seed=session.rank)
        optimizer = distributed(session, model, sgd(model, 0.1), SPARSE)
        if session.rank == 0:
            model.load_state_dict(copy.deepcopy(weights))
            optimizer.load_state_dict(copy.deepcopy(state))
        broadcast_parameters(model.state_dict(), 0, session=session)
        broadcast_optimizer_state(optimizer, 0, session=session)
        train(model, optimizer, range(8, 14), session)
        return flat(model), optimizer._reducer.step

    (first, step), (second, other) = run_ranks(2, job)
    assert torch.equal(first, second)
    assert step == other == 14


def test_state_under_other_names_is_not_dropped_in_silence(caplog):
    def job(session):
        model = model_of()
        optimizer = distributed(session, model, sgd(model), SPARSE)
        train(model, optimizer, range(3), session)
        state = optimizer.state_dict()
        entries = state["sparse_ring"]["parameters"]
        state["sparse_ring"]["parameters"] = {f"module.{name}": entry for name, entry in entries.items()}
        optimizer.load_state_dict(state)

    with caplog.at_level(logging.WARNING, "sparse_ring"):
        run_ranks(1, job)
    assert "state of 2 parameters is left out" in caplog.text
    assert "module.0.weight, module.2.weight" in caplog.text


@pytest.mark.parametrize("what", ["state_dict", "load_state_dict", "add_param_group", "skip_synchronize"])
def test_nothing_reads_or_changes_the_state_while_gradients_are_exchanged(what):
    def job(session):
        model = model_of()
        optimizer = distributed(session, model, sgd(model))
        train(model, optimizer, range(2), session)
        state = optimizer.state_dict()
        optimizer.zero_grad()
        optimizer.synchronize()
        loss_of(model, 2).backward()
        calls = {
            "state_dict": optimizer.state_dict,
            "load_state_dict": lambda: optimizer.load_state_dict(state),
            "add_param_group": lambda: optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(1))]}),
        }
        if what == "skip_synchronize":
            with optimizer.skip_synchronize(), pytest.raises(RuntimeError, match=r"backward\(\) came after it"):
                optimizer.step()
        else:
            with pytest.raises(RuntimeError, match=rf"{what}\(\) was called while gradients are being exchanged"):
                calls[what]()
        optimizer.synchronize()

    run_ranks(2, job)


def test_a_dropped_batch_starts_the_count_of_passes_again():
    def job(session):
        model = model_of()
        optimizer = DistributedOptimizer(
            sgd(model), model.named_parameters(), backward_passes_per_step=2, session=session
        )
        loss_of(model, 0).backward()
        optimizer.zero_grad()
        for _ in range(2):
            assert not optimizer._reducer.in_flight()
            loss_of(model, 1).backward()
        optimizer.step()
        return all(record.passes == 0 for record in optimizer._reducer.records)

    assert run_ranks(2, job) == [True, True]
