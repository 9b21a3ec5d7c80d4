"""Ranks that are started as torchrun does; ``torch_jobs.py MODE``, started by tests/test_torchrun.py."""

import os
import signal
import sys
import time

import torch

import sparse_ring.torch as hvd
from sparse_ring.errors import SparseRingError
from sparse_ring.session import current
from tests.optimizer.models import loss_of, model_of, wrapped

RANK = int(os.environ.get("RANK", os.environ.get("PMI_RANK", "0")))


def frames() -> None:
    """Print what a short training has sent, and what came of it; a parameter a message, as timing decides what shares one."""
    os.environ["SPARSE_RING_FUSION_THRESHOLD"] = "0"
    hvd.init()
    model = model_of()
    optimizer = wrapped(current(), model, hvd.GradSA(density=0.05, minimum_elements=10, warmup_steps=2))
    for step in range(6):
        optimizer.zero_grad()
        loss_of(model, step, hvd.rank(), hvd.size()).backward()
        optimizer.step()
    metrics = current().metrics
    line = f"rank {hvd.rank()}: {metrics.message_bytes} bytes, hash {hvd.parameter_hash(model.parameters())}\n"
    # In one piece, since mpiexec mixes what ranks write.
    print(line, end="", flush=True)
    hvd.shutdown()


def killed() -> None:
    """Rank 1 is killed between two steps; the others wait for it."""
    hvd.init()
    hvd.allreduce(torch.ones(1))
    if RANK == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    hvd.allreduce(torch.ones(1), name="after")
    print("after")


def uncaught() -> None:
    hvd.init()
    hvd.allreduce(torch.ones(1))
    if RANK == 1:
        raise LookupError("only on rank 1")
    hvd.allreduce(torch.ones(1), name="after")
    print("after")


def early() -> None:
    """Rank 1 leaves long before the others, and stays alive; what they do without it goes on."""
    hvd.init()
    hvd.barrier()
    if RANK == 1:
        hvd.shutdown()
        time.sleep(3)
    else:
        time.sleep(1)
        try:
            hvd.allreduce(torch.ones(1), name="late")
        except SparseRingError as error:
            print(error, flush=True)


def exits() -> None:
    """Ends without shutdown(): the exit says goodbye."""
    hvd.init()
    hvd.allreduce(torch.ones(1))
    sys.exit(0)


def torch_first() -> None:
    """The script has its own default group; sparse_ring is a guest."""
    import torch.distributed as dist

    dist.init_process_group("gloo")
    hvd.init()
    assert (hvd.rank(), hvd.size()) == (dist.get_rank(), dist.get_world_size())
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert tensor.tolist() == hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist()
    dist.destroy_process_group()
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()
    print("torch_first: ok", flush=True)


def remade() -> None:
    """The default group is made anew at the same port while rank 1 is late; sparse_ring shuts down before, or goes on."""
    import torch.distributed as dist

    for turn in range(3):
        if RANK == 1 and turn:
            # Rank 0 must not find in the store where rank 1's last group was.
            time.sleep(0.5)
        dist.init_process_group("gloo")
        hvd.init()
        tensor = torch.ones(3)
        dist.all_reduce(tensor)
        assert tensor.tolist() == hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist()
        if sys.argv[2] == "shut_down":
            hvd.shutdown()
        dist.barrier()
        dist.destroy_process_group()
    print("remade: ok", flush=True)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
