"""A recipe of one's own: top-k whose residual fades (sparse-ring-run -np 2 python examples/own_recipe.py)."""

from dataclasses import dataclass

import torch
from torch import nn

import sparse_ring.torch as hvd
from sparse_ring.error_feedback import Residual
from sparse_ring.recipe import SparseRecipe
from sparse_ring.select import ExactTopK


class FadingResidual(Residual):
    """What waits loses a part of its weight with each step."""

    def __init__(self, numel, kernels, fade):
        super().__init__(numel, kernels)
        self.fade = fade

    def sent(self, decoded):
        """Take off what was sent, let the rest fade."""
        super().sent(decoded)
        self.accumulated *= self.fade


@dataclass(frozen=True, kw_only=True)
class FadingTopK(SparseRecipe):
    """r = r + g; send the k largest of r; r = fade * what is left."""

    fade: float = 0.9

    @property
    def exempt(self) -> str:
        """Say why nothing is conserved."""
        return "what waits fades"

    def error_feedback(self, numel, kernels):
        """Return the memory of one parameter."""
        return FadingResidual(numel, kernels, self.fade)

    def selector(self):
        """Return what chooses its elements."""
        return ExactTopK()


hvd.init()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), FadingTopK(density=0.05))
data = torch.Generator().manual_seed(hvd.rank())
for _ in range(50):
    optimizer.zero_grad()
    inputs = torch.randn(32, 64, generator=data)
    (loss := nn.functional.mse_loss(model(inputs), inputs.flip(1))).backward()
    optimizer.step()
print(f"validation loss {loss.item():.3f}, parameter hash {hvd.parameter_hash(model.parameters())}")
hvd.shutdown()
