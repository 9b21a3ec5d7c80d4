"""What ``state_dict()`` holds of the exchange, and what loading it on the same, another or no rank does."""

import copy
import io
import logging

import pytest
import torch

from sparse_ring.optimizer import DistributedOptimizer
from sparse_ring.recipe import Dense, GradSA, TopK
from tests.helpers import run_ranks
from tests.optimizer.models import flat, loss_of, model_of

GRADSA = GradSA(density=0.1, minimum_elements=10, warmup_steps=4)


def make(session, recipe, dtype=torch.float32, **options):
    model = model_of(dtype=dtype)
    settings = {"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-3, **options}
    optimizer = torch.optim.SGD(model.parameters(), **settings)
    return model, DistributedOptimizer(optimizer, model.named_parameters(), recipe, session=session)


def train(session, model, optimizer, steps):
    for step in steps:
        optimizer.zero_grad()
        dtype = next(model.parameters()).dtype
        loss_of(model, step, session.rank, session.size, dtype).backward()
        optimizer.step()


def saved(model, optimizer):
    """A checkpoint through torch.save, as users write it."""
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("recipe", [Dense(), TopK(density=0.1, minimum_elements=10), GRADSA])
@pytest.mark.parametrize("stop", [2, 7])
def test_resuming_equals_no_interruption_bit_for_bit(recipe, stop):
    def job(session):
        model, optimizer = make(session, recipe)
        train(session, model, optimizer, range(stop))
        checkpoint = saved(model, optimizer)
        train(session, model, optimizer, range(stop, 10))

        resumed, again = make(session, recipe)
        resumed.load_state_dict(checkpoint["model"])
        again.load_state_dict(checkpoint["optimizer"])
        train(session, resumed, again, range(stop, 10))
        return torch.equal(flat(model), flat(resumed))

    # The two optimizers of a rank use the same names one after the other.
    assert run_ranks(2, job) == [True, True]


def test_the_state_is_this_ranks_own_and_says_whose():
    def job(session):
        model, optimizer = make(session, GRADSA)
        train(session, model, optimizer, range(6))
        return optimizer.state_dict()["sparse_ring"]

    first, second = run_ranks(2, job)
    assert (first["rank"], first["size"], first["step"]) == (0, 2, 6)
    assert second["rank"] == 1
    entry = first["parameters"]["0.weight"]
    assert sorted(entry) == ["residual", "velocity", "weight_decay_buffer"]
    other = second["parameters"]["0.weight"]
    assert not torch.equal(entry["residual"], other["residual"])
    assert torch.equal(entry["weight_decay_buffer"], other["weight_decay_buffer"])
    assert "0.bias" not in first["parameters"]


def test_residuals_of_half_precision_parameters_are_never_cast():
    def job(session):
        model, optimizer = make(session, GRADSA, dtype=torch.bfloat16)
        train(session, model, optimizer, range(6))
        checkpoint = saved(model, optimizer)["optimizer"]
        optimizer.load_state_dict(checkpoint)
        again = optimizer.state_dict()["sparse_ring"]["parameters"]["0.weight"]
        kept = checkpoint["sparse_ring"]["parameters"]["0.weight"]
        assert kept["residual"].dtype == torch.float32
        return torch.equal(kept["residual"], again["residual"]), bool(kept["residual"].abs().sum() > 0)

    assert run_ranks(2, job) == [(True, True)] * 2


def test_another_ranks_state_gives_everything_but_the_residuals_and_says_what_is_lost(caplog):
    """Horovod's manner: rank 0 saves, all load the same file."""

    def job(session):
        model, optimizer = make(session, GRADSA)
        train(session, model, optimizer, range(6))
        return saved(model, optimizer)

    checkpoint = run_ranks(2, job)[0]

    def load(session):
        model, optimizer = make(session, GRADSA)
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(copy.deepcopy(checkpoint["optimizer"]))
        state = optimizer.state_dict()["sparse_ring"]
        train(session, model, optimizer, range(6, 9))
        return state, flat(model)

    with caplog.at_level(logging.WARNING, "sparse_ring"):
        (own, first), (foreign, second) = run_ranks(2, load)
    assert torch.equal(first, second)
    assert own["step"] == foreign["step"] == 6
    assert float(own["parameters"]["0.weight"]["residual"].abs().sum()) > 0
    assert float(foreign["parameters"]["0.weight"]["residual"].abs().sum()) == 0
    assert "velocity" not in foreign["parameters"]["0.weight"]
    lost = [entry[kind] for entry in own["parameters"].values() for kind in ("residual", "velocity")]
    norm = sum(float(array.double().square().sum()) for array in lost) ** 0.5
    said = [record.message for record in caplog.records]
    expected = (
        f"Rank 1 of 2 loads the state of rank 0 of 2: residuals and velocities with a norm of {norm:.3g} are lost. "
        f"Let each rank save and load its own state to keep them."
    )
    assert said == [expected]


def test_a_plain_checkpoint_starts_every_velocity_from_its_momentum():
    plain_model = model_of()
    plain = torch.optim.SGD(plain_model.parameters(), lr=0.05, momentum=0.9)
    for step in range(3):
        plain.zero_grad()
        loss_of(plain_model, step).backward()
        plain.step()

    def job(session):
        model, optimizer = make(session, GRADSA, weight_decay=0.0)
        optimizer.load_state_dict(copy.deepcopy(plain.state_dict()))
        velocity = optimizer.state_dict()["sparse_ring"]["parameters"]["0.weight"]["velocity"]
        train(session, model, optimizer, range(6))
        assert "momentum_buffer" not in optimizer.state[model[0].weight]
        return velocity, optimizer.state[model[0].bias]["momentum_buffer"].shape

    for velocity, bias in run_ranks(2, job):
        assert torch.equal(velocity, plain.state[plain_model[0].weight]["momentum_buffer"].reshape(-1))
        assert bias == (64,)


def test_state_that_does_not_fit_is_refused_by_name():
    def job(session):
        _, optimizer = make(session, GRADSA)
        state = optimizer.state_dict()
        state["sparse_ring"]["parameters"]["0.weight"] = {"residual": torch.zeros(3)}
        with pytest.raises(
            ValueError, match=r"Parameter '0\.weight': residual has 3 elements, but the parameter has 1280"
        ):
            optimizer.load_state_dict(state)
        state["sparse_ring"]["format"] = 99
        with pytest.raises(ValueError, match="format 99, but this version reads 1"):
            optimizer.load_state_dict(state)

    run_ranks(1, job)


def test_the_wrapped_optimizers_state_is_plain_torch():
    """Anyone can load it: only the extra key is ours."""

    def job(session):
        model, optimizer = make(session, TopK(density=0.1, minimum_elements=10))
        train(session, model, optimizer, range(3))
        state = optimizer.state_dict()
        del state["sparse_ring"]
        other = torch.optim.SGD(model_of().parameters(), lr=1.0, momentum=0.1)
        other.load_state_dict(state)
        return other.param_groups[0]["momentum"], len(other.state)

    assert run_ranks(1, job) == [(0.9, 4)]
