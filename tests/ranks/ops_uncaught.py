"""Run under mpiexec: one rank fails, and the others, which wait for it, must not wait forever."""

from __future__ import annotations

import torch

from sparse_ring import ops, session

session.init()
ops.allreduce(torch.ones(1))
if session.rank() == 1:
    raise LookupError("only on rank 1")
ops.allreduce(torch.ones(1))
print("after", flush=True)
