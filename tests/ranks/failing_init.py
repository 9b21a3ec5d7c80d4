"""Ranks that fail in or just before ``init()``; ``failing_init.py MODE``. The others must end."""

import os
import sys

import sparse_ring.torch as hvd

mode = sys.argv[1]
rank = int(os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK", "0")))
if mode == "list":
    hvd.init(comm=[0, 1] if rank == 0 else [0])
elif mode == "setting":
    if rank == 1:
        os.environ["SPARSE_RING_PROGRESS"] = "perhaps"
    hvd.init()
elif mode == "kernels":
    if rank == 1:
        os.environ["SPARSE_RING_KERNELS"] = "avx9"
    hvd.init()
print("joined")
