"""Programs that run in environments where only the wheel is installed."""

from __future__ import annotations

KERNELS = """
import json, sys
import numpy
import sparse_ring
from sparse_ring.kernels.table import kernels_for

assert sparse_ring.__file__.startswith(sys.prefix), sparse_ring.__file__
indices, values = numpy.zeros(20, numpy.uint32), numpy.zeros(20, numpy.float32)
found = [
    (kernels_for(name).select(numpy.float32([1, -3, 0, 2]), 2.0, indices, values), indices[:2].tolist())
    for name in ("reference", "scalar", "auto")
]
print(json.dumps(found))
"""
"""Prints what three kernels select: two elements each, at 1 and 3."""

TRAINING = """
import torch
import sparse_ring.torch as hvd

hvd.init()
torch.manual_seed(hvd.rank())
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), compression=hvd.GradSA(density=0.05))
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
inputs = torch.randn(32, 64)
target = inputs[:, :8]
losses = []
for _ in range(60):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), target)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0] / 2, (losses[0], losses[-1])
print(f"trained {hvd.parameter_hash(model.parameters())}")
hvd.shutdown()
"""
"""Trains on each rank's own data, where the loss must halve; prints ``trained HASH``."""
