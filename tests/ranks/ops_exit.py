"""Run under mpiexec: a forked child is refused and ends without harm; a rank that ends early says goodbye."""

from __future__ import annotations

import os
import sys
import warnings

import torch

from sparse_ring import ops, session
from sparse_ring.errors import RankLostError, SparseRingError

session.init()
ops.barrier()
with warnings.catch_warnings():
    # Python 3.12 warns of forking beside threads, which is what this script is about.
    warnings.simplefilter("ignore", DeprecationWarning)
    child = os.fork()
if child == 0:
    try:
        ops.allreduce(torch.ones(1))
    except SparseRingError as error:
        print(error, flush=True)
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
print(f"parent goes on: {ops.allreduce(torch.ones(1), op=ops.Sum).tolist()}", flush=True)
if session.rank() == 1:
    sys.exit(0)
try:
    ops.allreduce(torch.ones(1), name="late")
except RankLostError as error:
    print(error, flush=True)
