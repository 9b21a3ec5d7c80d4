"""One allreduce; with an argument, rank 1 raises afterwards. Settings come from the environment."""

import sys

import torch

import sparse_ring.torch as hvd

hvd.init()
hvd.allreduce(torch.ones(30_000), name="ones")
if len(sys.argv) > 1:
    if hvd.rank() == 1:
        raise LookupError("only on rank 1")
    hvd.allreduce(torch.ones(1), name="never")
hvd.shutdown()
