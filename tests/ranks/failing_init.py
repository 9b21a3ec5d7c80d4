"""Ranks that fail in or just before ``init()``; ``failing_init.py MODE [RANK]``. The others must end."""

import os
import sys

import sparse_ring.torch as hvd

mode, failing = sys.argv[1], int((*sys.argv[2:], "1")[0])
names = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "RANK")
rank = next(int(os.environ[name]) for name in names if name in os.environ)
if mode == "list":
    hvd.init(comm=[0, 1] if rank == 0 else [0])
elif mode == "setting":
    if rank == failing:
        os.environ["SPARSE_RING_PROGRESS"] = "perhaps"
    hvd.init()
elif mode == "kernels":
    if rank == failing:
        os.environ["SPARSE_RING_KERNELS"] = "avx9"
    hvd.init()
print("joined")
