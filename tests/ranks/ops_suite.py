"""Run under mpiexec or as torchrun does: every check of the collectives on real ranks, then init and shutdown in cycles."""

from __future__ import annotations

import os
import sys

import torch

from sparse_ring import ops, session
from tests.ops.suite import CHECKS

session.init()
session.init()
for check in CHECKS:
    check(session.current())
rank, size = session.rank(), session.size()
assert session.local_size() == size
assert session.local_rank() == rank
assert (session.cross_rank(), session.cross_size()) == (0, 1)
assert torch.get_num_threads() == 1
session.shutdown()
session.shutdown()
assert not session.is_initialized()

for _ in range(2):
    session.init()
    assert ops.allreduce(torch.ones(3), op=ops.Sum).tolist() == [float(size)] * 3
    session.shutdown()

if rank > 0 or size == 1:
    part = list(range(1, size)) or [0]
    session.init(part)
    assert session.size() == len(part)
    assert ops.allgather(torch.tensor(rank)).tolist() == part
    session.shutdown()

if "RANK" in os.environ:
    # Started as torchrun does: process groups instead of communicators.
    assert "mpi4py.MPI" not in sys.modules
    import torch.distributed as dist

    dist.init_process_group("gloo")
    pair = [rank for rank in (1, 2) if rank < size] or [0]
    for group in (dist.group.WORLD, dist.new_group(pair)):
        if dist.get_rank(group) >= 0:
            session.init(group)
            assert (session.rank(), session.size()) == (dist.get_rank(group), dist.get_world_size(group))
            assert ops.allreduce(torch.ones(1), op=ops.Sum).tolist() == [float(session.size())]
            session.shutdown()
    session.init()
    # The script's group is its own: it may go while the session stays.
    dist.barrier()
    dist.destroy_process_group()
    assert ops.allreduce(torch.ones(1), op=ops.Sum).tolist() == [float(size)]
    session.shutdown()
else:
    from mpi4py import MPI  # init() comes first, as in scripts

    for comm in (MPI.COMM_SELF, MPI.COMM_WORLD):
        session.init(comm)
        assert (session.rank(), session.size()) == (comm.rank, comm.size)
        assert ops.allreduce(torch.ones(1), op=ops.Sum).tolist() == [float(comm.size)]
        session.shutdown()

print(f"rank {rank} of {size}: {len(CHECKS)} checks, all cycles", flush=True)
