"""The arms: ways to train the same model on several ranks. All run in one job, each with a model of its own."""

import os
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.nn.parallel import DistributedDataParallel

import sparse_ring.torch as hvd
from benchmarks.slow_link.task import MOMENTUM, loss_of, network
from sparse_ring.recipe import Recipe

# One bucket: torch's PowerSGD hook on gloo aborts with several, whose chained collectives meet in different orders.
ONE_BUCKET_MB = 1000
AVERAGED_EVERY = 4

# Makes the state and the function of a communication hook.
Hook = Callable[[], tuple[object, Callable[..., object]]]


@dataclass
class Arm:
    """A model that is being trained: ``step(batch)`` takes one step."""

    model: nn.Module
    step: Callable[[tuple[torch.Tensor, torch.Tensor]], None]


@dataclass(frozen=True)
class Kind:
    """How an arm is made. ``exchanges``: after every step all replicas are equal; ``dense``: every element travels."""

    make: Callable[[int, float], Arm]
    ours: bool = False
    exchanges: bool = True
    dense: bool = False


def _sgd(model: nn.Module, lr: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=MOMENTUM)


def _loop(model: nn.Module, called: nn.Module, optimizer: torch.optim.Optimizer) -> Arm:
    """The one training loop."""

    def step(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
        optimizer.zero_grad()
        loss_of(called, batch).backward()
        optimizer.step()

    return Arm(model, step)


def _compute_only(seed: int, lr: float) -> Arm:
    model = network(seed)
    return _loop(model, model, _sgd(model, lr))


def _meeting(seed: int, lr: float) -> Arm:
    """Compute only, and the ranks wait for each other after each step: what being synchronous costs, whoever exchanges."""
    arm = _compute_only(seed, lr)

    def step(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
        arm.step(batch)
        dist.barrier()

    return Arm(arm.model, step)


def _ours(recipe: Recipe) -> Callable[[int, float], Arm]:
    def make(seed: int, lr: float) -> Arm:
        model = network(seed)
        optimizer = hvd.DistributedOptimizer(_sgd(model, lr), model.named_parameters(), compression=recipe)
        return _loop(model, model, optimizer)

    return make


def _ddp(
    hook: Callable[[], tuple[object, Callable[..., object]]] | None = None, bucket_mb: float = 25
) -> Callable[[int, float], Arm]:
    def make(seed: int, lr: float) -> Arm:
        model = network(seed)
        wrapped = DistributedDataParallel(model, bucket_cap_mb=bucket_mb, gradient_as_bucket_view=True)
        if hook is not None:
            wrapped.register_comm_hook(*hook())
        return _loop(model, wrapped, _sgd(model, lr))

    return make


def _power_sgd(rank: int) -> Hook:
    def state() -> tuple[object, Callable[..., object]]:
        # Its defaults, but for the start: 1,000 dense steps would be longer than the run.
        return powerSGD_hook.PowerSGDState(None, rank, start_powerSGD_iter=10), powerSGD_hook.powerSGD_hook

    return state


def _post_local_sgd(seed: int, lr: float) -> Arm:
    """Local steps, and the mean of all replicas after every fourth: torch's averager, from the first step on."""
    model = network(seed)
    optimizer = _sgd(model, lr)
    averager = PeriodicModelAverager(AVERAGED_EVERY, warmup_steps=0)

    def step(batch: tuple[torch.Tensor, torch.Tensor]) -> None:
        optimizer.zero_grad()
        loss_of(model, batch).backward()
        optimizer.step()
        averager.average_parameters(model.parameters())

    return Arm(model, step)


def _bf16_hook(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """torch's own, which DDP refuses by its name outside of CUDA although gloo adds bfloat16."""
    return default_hooks.bf16_compress_hook(state, bucket)


KINDS = {
    "compute only": Kind(_compute_only, exchanges=False),
    "compute and meet": Kind(_meeting, exchanges=False),
    "sparse_ring dense": Kind(_ours(hvd.Dense()), ours=True, dense=True),
    "sparse_ring bf16": Kind(_ours(hvd.BF16()), ours=True, dense=True),
    "sparse_ring topk 1 %": Kind(_ours(hvd.TopK(density=0.01)), ours=True),
    "sparse_ring gradsa 1 %": Kind(_ours(hvd.GradSA(density=0.01, warmup_steps=0)), ours=True),
    "sparse_ring gradsa 1 % int4": Kind(_ours(hvd.GradSA(density=0.01, warmup_steps=0, values="int4")), ours=True),
    "sparse_ring gradsa 0.1 %": Kind(_ours(hvd.GradSA(density=0.001, warmup_steps=0)), ours=True),
    "ddp fp32": Kind(_ddp(), dense=True),
    "ddp fp16": Kind(_ddp(lambda: (None, default_hooks.fp16_compress_hook)), dense=True),
    "ddp bf16": Kind(_ddp(lambda: (None, _bf16_hook)), dense=True),
    "ddp powersgd rank 1": Kind(_ddp(_power_sgd(1), ONE_BUCKET_MB)),
    "ddp powersgd rank 4": Kind(_ddp(_power_sgd(4), ONE_BUCKET_MB)),
    "post-local sgd": Kind(_post_local_sgd, exchanges=False),
}


def start_torch() -> None:
    """Make torch's process group among the ranks of the job."""
    address = hvd.broadcast_object(os.environ.get("LAB_ADDRESS", "127.0.0.1"))
    dist.init_process_group("gloo", f"tcp://{address}:29501", rank=hvd.rank(), world_size=hvd.size())
