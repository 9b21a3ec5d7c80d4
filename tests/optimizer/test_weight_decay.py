"""Weight decay is every rank's own and whole, however little of the gradients travels."""

import pytest
import torch

from sparse_ring.optimizer import DistributedOptimizer
from sparse_ring.recipe import GradSA, TopK
from tests.helpers import run_ranks
from tests.optimizer.models import distance, flat, loss_of, model_of

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.1),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.1, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.1),
}


def run(session, name, recipe, share):
    """Ten steps on gradients times ``share``."""
    model = model_of()
    optimizer = OPTIMIZERS[name](model.parameters())
    rank, size = (0, 1) if session is None else (session.rank, session.size)
    if session is not None:
        optimizer = DistributedOptimizer(optimizer, model.named_parameters(), recipe, session=session)
    for step in range(10):
        optimizer.zero_grad()
        (share * loss_of(model, step, rank, size)).backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("name", list(OPTIMIZERS))
@pytest.mark.parametrize("kind", [TopK, lambda **settings: GradSA(warmup_steps=0, **settings)], ids=["topk", "gradsa"])
def test_it_is_whole_where_gradients_are_zero_and_hardly_anything_travels(name, kind):
    """If it were sent, a twentieth of the parameters would decay, or the rest later."""
    recipe = kind(density=0.05, values="float32", minimum_elements=10)
    first, second = run_ranks(2, lambda session: run(session, name, recipe, 0.0))
    assert torch.equal(flat(first), flat(second))
    assert distance(first, run(None, name, recipe, 0.0)) < 1e-6
    assert distance(first, model_of()) > 1e-3


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_it_is_the_optimizers_where_everything_travels(name):
    """SGD's goes through momentum, Adam's through both moments, AdamW's past them."""
    recipe = GradSA(density=1.0, minimum_elements=10)
    first, second = run_ranks(2, lambda session: run(session, name, recipe, 1.0))
    assert torch.equal(flat(first), flat(second))
    assert distance(first, run(None, name, recipe, 1.0)) < 1e-4
