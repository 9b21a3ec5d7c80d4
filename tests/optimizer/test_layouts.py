"""Gradients of any strides, also where ranks differ in them: an index means the same element everywhere."""

import pytest
import torch
from torch import nn

from sparse_ring.optimizer import DistributedOptimizer
from sparse_ring.recipe import BF16, Dense, GradSA, TopK
from tests.helpers import run_ranks

SHAPE = (6, 4, 5, 3)
RECIPES = [
    Dense(),
    BF16(),
    TopK(density=1.0, values="float32", minimum_elements=10),
    TopK(density=0.3, values="float32", minimum_elements=10),
    GradSA(density=0.3, values="float32", minimum_elements=10, warmup_steps=0),
]
IDS = ["dense", "bf16", "topk all", "topk", "gradsa"]

# Where a dimension is expanded, its elements are one in memory; the shared gradient's need not be.
LAYOUTS = {
    "channels_last": lambda gradient: gradient.contiguous(memory_format=torch.channels_last),
    "transposed": lambda gradient: gradient.transpose(0, 3).contiguous().transpose(0, 3),
    "every second": lambda gradient: torch.stack([gradient, gradient], -1)[..., 0],
    "expanded": lambda gradient: gradient[:, :1, :, :1].expand(SHAPE),
    "one number": lambda gradient: gradient[0, 0, 0, 0].expand(SHAPE),
}


def gradient_of(rank, step):
    """Whole numbers, which bfloat16 holds."""
    generator = torch.Generator().manual_seed(10 * step + rank)
    return torch.randint(-64, 65, SHAPE, generator=generator).float()


def train(session, recipe, layout, ranks, strided):
    """Three steps of gradients with ``layout``'s values on some ranks; with its strides, too, or all in C order."""
    parameter = nn.Parameter(torch.zeros(SHAPE))
    optimizer = DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0, momentum=0.5), None, recipe, session=session)
    for step in range(3):
        gradient = gradient_of(session.rank, step)
        if session.rank in ranks:
            gradient = LAYOUTS[layout](gradient)
        parameter.grad = gradient if strided else gradient.contiguous()
        optimizer.step()
    return parameter.detach()


@pytest.mark.parametrize("recipe", RECIPES, ids=IDS)
@pytest.mark.parametrize("layout", list(LAYOUTS))
@pytest.mark.parametrize("ranks", [(1,), (0, 1, 2)], ids=["on one rank", "on all ranks"])
def test_strides_change_no_bit(recipe, layout, ranks):
    results = run_ranks(3, lambda session: train(session, recipe, layout, ranks, True))
    expected = run_ranks(3, lambda session: train(session, recipe, layout, ranks, False))[0]
    assert expected.any()
    for result in results:
        assert torch.equal(result, expected)
