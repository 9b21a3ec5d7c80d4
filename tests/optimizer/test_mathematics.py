"""What the wrapped optimizer does equals what one process does with the union of all batches."""

import numpy as np
import pytest
import torch

from sparse_ring.optimizer import DistributedOptimizer
from sparse_ring.recipe import BF16, Dense, GradSA, TopK
from tests.helpers import run_ranks
from tests.optimizer.models import distance, flat, loss_of, model_of

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3, nesterov=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
}


def alone(optimizer, dtype=torch.float32, steps=50):
    model = model_of(dtype=dtype)
    optimizer = OPTIMIZERS[optimizer](model.parameters())
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(model, step, dtype=dtype).backward()
        optimizer.step()
    return model


def together(session, optimizer, recipe, dtype=torch.float32, steps=50):
    model = model_of(dtype=dtype)
    optimizer = DistributedOptimizer(
        OPTIMIZERS[optimizer](model.parameters()), model.named_parameters(), compression=recipe, session=session
    )
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(model, step, session.rank, session.size, dtype).backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_dense_equals_one_process_on_the_union_batch(size, optimizer, dtype, tolerance):
    models = run_ranks(size, lambda session: together(session, optimizer, Dense(), dtype))
    assert distance(models[0], alone(optimizer, dtype)) <= tolerance
    assert all(torch.equal(flat(model), flat(models[0])) for model in models)


@pytest.mark.parametrize("optimizer", ["sgd", "nesterov"])
def test_a_velocity_on_every_rank_means_what_the_optimizers_momentum_means(optimizer):
    """Everything sent each step: local momentum, averaged, and weight decay's own momentum add up to torch's SGD."""
    recipe = GradSA(density=1.0, minimum_elements=10)
    models = run_ranks(2, lambda session: together(session, optimizer, recipe))
    assert distance(models[0], alone(optimizer)) <= 1e-5
    assert torch.equal(flat(models[0]), flat(models[1]))


def test_maximize_negates_the_gradient_but_not_the_weight_decay():
    def settings(p):
        return torch.optim.SGD(p, lr=0.01, momentum=0.9, weight_decay=0.1, maximize=True)

    def job(session):
        model = model_of()
        optimizer = settings(model.parameters())
        rank, size = (0, 1) if session is None else (session.rank, session.size)
        if session is not None:
            recipe = GradSA(density=1.0, minimum_elements=10)
            optimizer = DistributedOptimizer(optimizer, model.named_parameters(), recipe, session=session)
        for step in range(20):
            optimizer.zero_grad()
            loss_of(model, step, rank, size).backward()
            optimizer.step()
        return model

    first, second = run_ranks(2, job)
    assert torch.equal(flat(first), flat(second))
    assert distance(first, job(None)) <= 1e-5


def test_top_k_is_the_published_recursion_bit_for_bit():
    """Error feedback before the exchange, torch's own momentum after it, simulated with NumPy for three ranks."""
    recipe = TopK(density=0.05, values="float32", minimum_elements=10)
    models = run_ranks(3, lambda session: together(session, "sgd", recipe, steps=15))

    reference = model_of()
    optimizer = OPTIMIZERS["sgd"](reference.parameters())
    named = list(reference.named_parameters())
    residuals = [{name: np.zeros(p.numel(), np.float32) for name, p in named} for _ in range(3)]
    for step in range(15):
        totals = {name: np.zeros(p.numel(), np.float32) for name, p in named}
        for rank in range(3):
            optimizer.zero_grad()
            loss_of(reference, step, rank, 3).backward()
            for name, p in named:
                gradient = p.grad.numpy().reshape(-1)
                if p.dim() > 1:
                    residual = residuals[rank][name]
                    residual += gradient
                    kept = np.argsort(-np.abs(residual), kind="stable")[: max(1, round(0.05 * p.numel()))]
                    gradient = np.zeros_like(residual)
                    gradient[kept] = residual[kept]
                    residual[kept] = 0
                totals[name] += gradient * np.float32(1 / 3)
        for name, p in named:
            p.grad = torch.from_numpy(totals[name]).reshape(p.shape)
        optimizer.step()
    for model in models:
        assert torch.equal(flat(model), flat(reference))


@pytest.mark.parametrize("recipe", [BF16(), TopK(density=0.1), GradSA(density=0.05, warmup_steps=4)])
@pytest.mark.parametrize("optimizer", ["sgd", "nesterov", "adamw"])
@pytest.mark.parametrize("size", [2, 4])
def test_replicas_stay_bit_identical(recipe, optimizer, size):
    models = run_ranks(size, lambda session: together(session, optimizer, recipe, steps=12))
    assert all(torch.equal(flat(model), flat(models[0])) for model in models)
    assert not torch.equal(flat(models[0]), flat(model_of()))


def test_bf16_is_close_to_dense():
    models = run_ranks(3, lambda session: together(session, "sgd", BF16(), steps=20))
    assert 0 < distance(models[0], alone("sgd", steps=20)) < 5e-3
