"""Small models and data that the optimizer's tests share."""

import torch
from torch import nn

from sparse_ring.optimizer import DistributedOptimizer

FEATURES, CLASSES, BATCH = 20, 5, 24


def model_of(seed=0, dtype=torch.float32):
    """Two layers, one above the size at which parameters are sparse."""
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Linear(FEATURES, 64), nn.Tanh(), nn.Linear(64, CLASSES)).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.2)
    return model


def batch_of(step, dtype=torch.float32):
    """The union batch of one step."""
    generator = torch.Generator().manual_seed(1000 + step)
    inputs = torch.randn(BATCH, FEATURES, generator=generator, dtype=torch.float64).to(dtype)
    return inputs, torch.randint(CLASSES, (BATCH,), generator=generator)


def loss_of(model, step, rank=0, size=1, dtype=torch.float32):
    """Mean loss over this rank's share of the union batch."""
    inputs, targets = batch_of(step, dtype)
    return nn.functional.cross_entropy(model(inputs[rank::size]), targets[rank::size])


def flat(model):
    """All parameters in one vector of float64."""
    return torch.cat([parameter.detach().double().reshape(-1) for parameter in model.parameters()])


def distance(one, other):
    """Relative distance of two models' parameters."""
    return float((flat(one) - flat(other)).norm() / flat(other).norm())


def wrapped(session, model, recipe=None, **options):
    """SGD with momentum on the model, distributed."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    return DistributedOptimizer(optimizer, model.named_parameters(), recipe, session=session, **options)


def warm_up(model, optimizer):
    """The steps that are watched before gradients leave during backward."""
    for step in range(2):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()
    optimizer.zero_grad()
