"""What real ranks must survive: one mode a run, started by tests/faults under mpiexec. ``faults.py MODE``."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

import sparse_ring.torch as hvd
from sparse_ring.session import current
from tests.optimizer.models import flat, loss_of, model_of, wrapped

GRADSA = hvd.GradSA(density=0.05, minimum_elements=10, warmup_steps=4)


def resident_bytes() -> int:
    """Memory of this process now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def same_everywhere(model: torch.nn.Module) -> None:
    hashes = hvd.allgather_object(hvd.parameter_hash(model.parameters()))
    assert len(set(hashes)) == 1, hashes


def stopped() -> None:
    """A rank that the system stops for seconds delays the others, and that is all."""
    hvd.init()
    model = model_of()
    optimizer = wrapped(current(), model, GRADSA)
    for step in range(8):
        if step == 4 and hvd.rank() == 1:
            again = f"sleep 3; kill -CONT {os.getpid()}"
            subprocess.Popen(["sh", "-c", again], start_new_session=True)
            os.kill(os.getpid(), signal.SIGSTOP)
        optimizer.zero_grad()
        loss_of(model, step, hvd.rank(), hvd.size()).backward()
        optimizer.step()
    same_everywhere(model)


def workers() -> None:
    """Forked DataLoader workers start after init() and end while the job goes on."""
    hvd.init()
    model = model_of()
    optimizer = wrapped(current(), model, GRADSA)
    data = TensorDataset(torch.randn(64, 20), torch.randint(5, (64,)))
    for _ in range(2):
        for inputs, targets in DataLoader(data, batch_size=16, num_workers=2, multiprocessing_context="fork"):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
    same_everywhere(model)


def cycles() -> None:
    """init() and shutdown() again and again: no memory, thread or file descriptor stays behind."""
    before = 0
    count = int(os.environ.get("CYCLES", "500"))
    for cycle in range(count):
        hvd.init()
        total = hvd.allreduce(torch.ones(100), op=hvd.Sum)
        assert total.tolist() == [float(hvd.size())] * 100
        hvd.shutdown()
        if cycle == count // 5:
            before = resident_bytes()
    grown = resident_bytes() - before
    assert grown < 0.01 * before, f"{grown} bytes more than {before}"
    assert len(os.listdir("/proc/self/task")) < 20
    assert len(os.listdir("/proc/self/fd")) < 60
    hvd.init()


def shapes() -> None:
    """Random shapes, dtypes and orders for thousands of steps: memory stays flat."""
    hvd.init()
    generator, order = np.random.default_rng(0), np.random.default_rng(1 + hvd.rank())
    before, count = 0, int(os.environ.get("STEPS", "2000"))
    for step in range(count):
        sizes = [tuple(generator.integers(0, 40, generator.integers(0, 3))) for _ in range(4)]
        tensors = [torch.full(size, float(step), dtype=torch.float64 if step % 3 else torch.float32) for size in sizes]
        handles = {n: hvd.allreduce_async(tensors[n], name=f"t{n}", op=hvd.Sum) for n in order.permutation(4)}
        for number, handle in handles.items():
            assert torch.equal(hvd.synchronize(handle), tensors[number] * hvd.size())
        if step == count // 4:
            before = resident_bytes()
    grown = resident_bytes() - before
    assert grown < 0.01 * before, f"{grown} bytes more than {before}"


def tiny() -> None:
    """Hundreds of tiny parameters, some of them empty or without dimensions."""
    hvd.init()
    sizes = [(), (1,), (0,), (2, 3), (16, 64)]
    parameters = [torch.nn.Parameter(torch.ones(sizes[n % 5])) for n in range(600)]
    for recipe in (hvd.Dense(), GRADSA):
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=0.1, momentum=0.9), None, recipe)
        for _ in range(6):
            optimizer.zero_grad()
            sum((p * (hvd.rank() + 1)).sum() for p in parameters).backward()
            optimizer.step()
        optimizer._reducer.close()
        hashes = hvd.allgather_object(hvd.parameter_hash(parameters))
        assert len(set(hashes)) == 1


def large() -> None:
    """One tensor of 1 GiB, through the dense ring and as a sparse message."""
    hvd.init()
    tensor = torch.full((1 << 28,), float(hvd.rank() + 1))
    hvd.allreduce_(tensor, op=hvd.Sum)
    assert float(tensor[0]) == float(tensor[-1]) == sum(range(1, hvd.size() + 1))
    del tensor
    parameter = torch.nn.Parameter(torch.zeros(1 << 14, 1 << 14))
    recipe = hvd.GradSA(density=0.001, warmup_steps=0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), None, recipe)
    parameter.grad = torch.zeros_like(parameter)
    parameter.grad[-1, -1] = 4.0
    optimizer.step()
    assert float(parameter.detach()[-1, -1]) == -4.0
    assert int(torch.count_nonzero(parameter.detach())) == 1


def crowded() -> None:
    """More ranks than cores."""
    hvd.init()
    model = model_of()
    optimizer = wrapped(current(), model, GRADSA)
    for step in range(10):
        optimizer.zero_grad()
        loss_of(model, step, hvd.rank(), hvd.size()).backward()
        optimizer.step()
    same_everywhere(model)
    assert not torch.equal(flat(model), flat(model_of()))


MODES: dict[str, Callable[[], None]] = {
    mode.__name__: mode for mode in (stopped, workers, cycles, shapes, tiny, large, crowded)
}

if __name__ == "__main__":
    MODES[sys.argv[1]]()
    print(f"{sys.argv[1]}: ok")
    hvd.shutdown()
