"""The wrapped optimizer means what it meant: groups, late parameters, several optimizers, copies, mixed precision."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn

from sparse_ring.optimizer import DistributedOptimizer
from sparse_ring.recipe import BF16, Dense, GradSA, TopK
from tests.helpers import run_ranks
from tests.optimizer.models import distance, flat, loss_of, model_of, wrapped

TOPK = TopK(density=0.2, minimum_elements=10)
GRADSA = GradSA(density=1.0, minimum_elements=10)

OPTIMIZERS = {
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05),
    "rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
    "sgd in groups": lambda p: (
        lambda q: torch.optim.SGD(
            [{"params": q[:1], "lr": 0.1, "momentum": 0.5}, {"params": q[1:], "weight_decay": 0.1}],
            lr=0.05,
            momentum=0.9,
        )
    )(list(p)),
}


def steps(model, optimizer, session=None, count=15, before_step=lambda: None):
    rank, size = (0, 1) if session is None else (session.rank, session.size)
    for step in range(count):
        optimizer.zero_grad()
        loss_of(model, step, rank, size).backward()
        before_step()
        optimizer.step()
    return model


@pytest.mark.parametrize("recipe", [Dense(), GRADSA], ids=["dense", "gradsa at density 1"])
@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_every_optimizer_equals_one_process_on_the_union_batch(name, recipe):
    def job(session):
        model = model_of()
        optimizer = OPTIMIZERS[name](model.parameters())
        if session is not None:
            optimizer = DistributedOptimizer(optimizer, model.named_parameters(), recipe, session=session)
        return steps(model, optimizer, session)

    first, second = run_ranks(2, job)
    assert torch.equal(flat(first), flat(second))
    assert distance(first, job(None)) < 2e-5


def test_a_scheduler_that_cycles_momentum_is_followed():
    def job(session):
        model = model_of()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        if session is not None:
            optimizer = DistributedOptimizer(optimizer, model.named_parameters(), GRADSA, session=session)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 15, base_momentum=0.5, max_momentum=0.95)
        for step in range(15):
            steps(model, optimizer, session, count=1)
            schedule.step()
            assert step < 20
        return model

    first, second = run_ranks(2, job)
    assert torch.equal(flat(first), flat(second))
    assert distance(first, job(None)) < 1e-5


def test_groups_have_their_own_recipe_and_density():
    def job(session):
        model = model_of()
        groups = [
            {"params": model[0].parameters(), "density": 0.5},
            {"params": model[2].parameters(), "compression": BF16()},
        ]
        optimizer = DistributedOptimizer(
            torch.optim.SGD(groups, lr=0.1), model.named_parameters(), TOPK, session=session
        )
        steps(model, optimizer, session, count=3)
        recipes = {record.name: record.recipe for record in optimizer._reducer.records}
        torch.save(optimizer.state_dict(), file := io.BytesIO())
        file.seek(0)
        torch.load(file, weights_only=True)
        return recipes, flat(model)

    (recipes, first), (_, second) = run_ranks(2, job)
    assert torch.equal(first, second)
    assert recipes["0.weight"] == TopK(density=0.5, minimum_elements=10)
    assert recipes["2.weight"] == BF16()


def test_a_density_without_a_sparse_recipe_is_refused():
    def job(session):
        optimizer = torch.optim.SGD([{"params": [nn.Parameter(torch.zeros(3))], "density": 0.1}], lr=0.1)
        with pytest.raises(ValueError, match=r"Parameter group 0 has density=0\.1, but Dense\(\) has none"):
            DistributedOptimizer(optimizer, session=session)

    run_ranks(1, job)


@pytest.mark.parametrize("recipe", [Dense(), GRADSA])
def test_groups_that_are_added_later_are_shared(recipe):
    def job(session):
        model = model_of()
        optimizer = torch.optim.SGD(model[2].parameters(), lr=0.05, momentum=0.9)
        if session is not None:
            optimizer = DistributedOptimizer(optimizer, model.named_parameters(), recipe, session=session)
        model[0].requires_grad_(False)
        steps(model, optimizer, session, count=4)
        model[0].requires_grad_(True)
        optimizer.add_param_group({"params": model[0].parameters(), "lr": 0.1})
        return steps(model, optimizer, session, count=6)

    first, second = run_ranks(2, job)
    assert torch.equal(flat(first), flat(second))
    assert distance(first, job(None)) < 1e-5


def test_a_group_that_is_added_later_is_as_one_that_was_frozen():
    """Its velocity, too, is kept before the exchange: with most of the gradient waiting, momentum after it is another thing."""
    recipe = GradSA(density=0.1, minimum_elements=10, warmup_steps=0)

    def job(session, added):
        model = model_of()
        model[0].requires_grad_(False)
        first = model[2].parameters() if added else model.parameters()
        optimizer = torch.optim.SGD(first, lr=0.05, momentum=0.9, weight_decay=0.01)
        optimizer = DistributedOptimizer(optimizer, model.named_parameters(), recipe, session=session)
        steps(model, optimizer, session, count=3)
        model[0].requires_grad_(True)
        if added:
            optimizer.add_param_group({"params": model[0].parameters()})
        steps(model, optimizer, session, count=6)
        assert "velocity" in optimizer.state_dict()["sparse_ring"]["parameters"]["0.weight"]
        return flat(model)

    first, second = run_ranks(2, lambda session: job(session, True))
    frozen, _ = run_ranks(2, lambda session: job(session, False))
    assert torch.equal(first, second)
    assert torch.equal(first, frozen)


def test_a_refused_group_is_taken_out_on_all_ranks_and_training_goes_on():
    def job(session):
        model = model_of()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        if session is None:
            return steps(model, optimizer)
        optimizer = DistributedOptimizer(optimizer, model.named_parameters(), GRADSA, session=session)
        with pytest.raises(ValueError, match="1 optimizer parameters are not in named_parameters"):
            optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(30, 30))]})
        assert len(optimizer.param_groups) == 1
        return steps(model, optimizer, session)

    first, second = run_ranks(2, job)
    assert torch.equal(flat(first), flat(second))
    assert distance(first, job(None)) < 1e-5


def tied_model():
    model = nn.Sequential(nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 20))
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(20) * 0.5)
        model[0].bias.zero_()
        model[2].bias.zero_()
    model[2].weight = model[0].weight
    return model


@pytest.mark.parametrize("every_name", [False, True])
@pytest.mark.parametrize("recipe", [Dense(), GRADSA, TopK(density=1.0, values="float32", minimum_elements=10)])
def test_tied_weights_equal_one_process_whatever_names_they_are_given(recipe, every_name):
    """Both uses add up in one gradient, which goes out once, under the first of its names."""

    def job(session):
        model = tied_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)
        if session is not None:
            named = model.named_parameters(remove_duplicate=not every_name)
            optimizer = DistributedOptimizer(optimizer, named, recipe, session=session)
            assert [record.name for record in optimizer._reducer.records] == ["0.weight", "0.bias", "2.bias"]
        return steps(model, optimizer, session, count=6)

    first, second = run_ranks(2, job)
    assert torch.equal(flat(first), flat(second))
    assert distance(first, job(None)) < 1e-5


def test_tied_weights_are_one_parameter():
    def job(session):
        model = tied_model()
        optimizer = wrapped(session, model, TOPK)
        steps(model, optimizer, session, count=3)
        assert model[2].weight is model[0].weight
        return [record.name for record in optimizer._reducer.records], flat(model)

    (names, first), (_, second) = run_ranks(2, job)
    assert names == ["0.weight", "0.bias", "2.bias"]
    assert torch.equal(first, second)


@pytest.mark.parametrize("how", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copy_of_the_optimizer_is_plain(how):
    def job(session):
        model = model_of()
        optimizer = wrapped(session, model)
        steps(model, optimizer, session, count=2)
        twin = how(optimizer)
        assert type(twin) is torch.optim.SGD
        assert not hasattr(twin, "_reducer")
        assert twin.param_groups[0]["momentum"] == 0.9
        assert len(twin.state) == 4
        twin.step()
        steps(model, optimizer, session, count=1)

    run_ranks(2, job)


def gan(session, frozen, recipe):
    """Discriminator and generator in turn; optimizers without names. ``frozen``: D gets no gradients from G's pass."""
    generator, discriminator = nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    seeded = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in (*generator.parameters(), *discriminator.parameters()):
            parameter.copy_(torch.randn(parameter.shape, generator=seeded))
    pair = [
        DistributedOptimizer(torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9), None, recipe, session=session)
        for m in (generator, discriminator)
    ]
    noise = torch.Generator().manual_seed(1 + session.rank)
    for _ in range(6):
        fake, real = generator(torch.randn(4, 8, generator=noise)), torch.randn(4, 8, generator=noise)
        pair[1].zero_grad()
        (discriminator(fake.detach()).mean() - discriminator(real).mean()).backward()
        pair[1].step()
        pair[0].zero_grad()
        discriminator.requires_grad_(not frozen)
        (-discriminator(fake).mean()).backward()
        discriminator.requires_grad_(True)
        pair[0].step()
    return torch.cat([flat(generator), flat(discriminator)])


@pytest.mark.parametrize("recipe", [Dense(), TOPK, GradSA(density=0.2, minimum_elements=10, warmup_steps=0)])
def test_gradients_that_no_step_uses_leave_no_trace(recipe):
    """A GAN: the generator's pass reaches the discriminator, whose gradients are dropped."""
    first, second = run_ranks(2, lambda session: gan(session, False, recipe))
    clean, _ = run_ranks(2, lambda session: gan(session, True, recipe))
    assert torch.equal(first, second)
    assert torch.equal(first, clean)


@pytest.mark.parametrize("recipe", [Dense(), GRADSA, TOPK])
def test_two_unnamed_optimizers_may_have_gradients_in_flight_at_once(recipe):
    """Their parameters have equal names and shapes; one backward hands over those of both."""

    def job(session, together):
        models = [model_of(seed=seed) for seed in range(2)]
        pair = [
            DistributedOptimizer(torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9), None, recipe, session=session)
            for m in models
        ]
        for step in range(6):
            losses = [loss_of(model, step, session.rank, session.size) for model in models]
            for optimizer in pair:
                optimizer.zero_grad()
            if together:
                sum(losses).backward()
                assert all(optimizer._reducer.in_flight() == (step >= 2) for optimizer in pair)
            for loss, optimizer in zip(losses, pair, strict=True):
                if not together:
                    loss.backward()
                optimizer.step()
        return torch.cat([flat(model) for model in models])

    first, second = run_ranks(2, lambda session: job(session, True))
    alone, _ = run_ranks(2, lambda session: job(session, False))
    assert torch.equal(first, second)
    assert torch.equal(first, alone)


def test_local_clipping_before_the_exchange():
    def job(session):
        model = model_of()
        optimizer = wrapped(session, model, overlap=False)
        norms = []

        def clip():
            nn.utils.clip_grad_norm_(model.parameters(), 0.01)
            norms.append(float(torch.cat([p.grad.reshape(-1) for p in model.parameters()]).norm()))

        steps(model, optimizer, session, count=5, before_step=clip)
        assert max(norms) <= 0.01 * 1.001
        return flat(model)

    first, second = run_ranks(2, job)
    assert torch.equal(first, second)
