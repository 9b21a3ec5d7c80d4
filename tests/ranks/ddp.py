"""DDP's hook beside DistributedOptimizer on real ranks; started by tests/test_ddp.py. ``ddp.py [CHECK ... | optimizer | hook]``."""

import os
import socket
import sys
import tempfile
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import sparse_ring.torch as hvd
from sparse_ring import ddp
from tests.optimizer.models import batch_of, flat, loss_of, model_of

RECIPES = [
    hvd.Dense(), hvd.BF16(), hvd.TopK(density=0.1, minimum_elements=10), hvd.Int8(minimum_elements=10, exchange="owners"),
    hvd.CLTK(density=0.05, minimum_elements=10), hvd.PowerSGD(rank=1, minimum_elements=10),
    hvd.GradSA(density=0.05, minimum_elements=10, warmup_steps=4),
]  # fmt: skip
# Small enough for a bucket a parameter, so that DDP rebuilds them in another order after the first step.
BUCKET_MB = 0.001


def start_torch() -> None:
    """torch's process group among the same ranks."""
    if dist.is_initialized():
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = hvd.broadcast_object(free.getsockname()[1])
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=hvd.rank(), world_size=hvd.size())


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3, nesterov=True)


def distributed(model: nn.Module, recipe: hvd.Dense) -> torch.optim.Optimizer:
    return hvd.DistributedOptimizer(sgd(model), model.named_parameters(), recipe)


def hooked(model: nn.Module, recipe: hvd.Dense, **options: object) -> tuple[nn.Module, torch.optim.Optimizer]:
    wrapped, optimizer = DistributedDataParallel(model, bucket_cap_mb=BUCKET_MB, **options), sgd(model)
    ddp.register(wrapped, optimizer, compression=recipe)
    return wrapped, optimizer


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int, start: int = 0) -> None:
    for step in range(start, start + steps):
        optimizer.zero_grad()
        loss_of(model, step, hvd.rank(), hvd.size()).backward()
        optimizer.step()


def equal_to_the_distributed_optimizer() -> None:
    for recipe in RECIPES:
        expected = model_of()
        train(expected, distributed(expected, recipe), 8)
        for view in (False, True):
            model = model_of()
            train(*hooked(model, recipe, gradient_as_bucket_view=view), 8)
            assert torch.equal(flat(model), flat(expected)), (recipe, view)
            assert not torch.equal(flat(model), flat(model_of()))


def static_graph() -> None:
    expected, model = model_of(), model_of()
    train(expected, distributed(expected, RECIPES[-1]), 6)
    train(*hooked(model, RECIPES[-1], static_graph=True), 6)
    assert torch.equal(flat(model), flat(expected))


class Branches(nn.Module):
    """A branch that some ranks use, and one that nobody uses in odd steps."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.some, self.rare = model_of(0), model_of(1), model_of(2)

    def forward(self, inputs: torch.Tensor, step: int) -> torch.Tensor:
        out = self.trunk(inputs)
        if hvd.rank() == 0:
            out = out + self.some(inputs)
        return out + self.rare(inputs) if step % 2 == 0 else out


def branches(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for step in range(7):
        optimizer.zero_grad()
        inputs, targets = batch_of(step)
        nn.functional.cross_entropy(
            model(inputs[hvd.rank() :: hvd.size()], step), targets[hvd.rank() :: hvd.size()]
        ).backward()
        odd = step % 2
        bare = getattr(model, "module", model)
        assert hvd.rank() or not odd or bare.rare[0].weight.grad is None
        optimizer.step()


def unused_parameters() -> None:
    for view in (False, True):
        expected, model = Branches(), Branches()
        branches(expected, distributed(expected, RECIPES[-1]))
        branches(*hooked(model, RECIPES[-1], find_unused_parameters=True, gradient_as_bucket_view=view))
        assert torch.equal(flat(model), flat(expected)), view


def gradients_accumulate_within_no_sync() -> None:
    expected, model = model_of(), model_of()
    reference = hvd.DistributedOptimizer(
        sgd(expected), expected.named_parameters(), RECIPES[-1], backward_passes_per_step=2
    )
    wrapped, optimizer = hooked(model, RECIPES[-1])
    for step in range(0, 10, 2):
        reference.zero_grad()
        optimizer.zero_grad()
        for n in (0, 1):
            loss_of(expected, step + n, hvd.rank(), hvd.size()).backward()
        reference.step()
        with wrapped.no_sync():
            loss_of(wrapped, step, hvd.rank(), hvd.size()).backward()
        loss_of(wrapped, step + 1, hvd.rank(), hvd.size()).backward()
        optimizer.step()
    assert torch.equal(flat(model), flat(expected))


def resuming_equals_no_interruption() -> None:
    expected, first, second = model_of(), model_of(), model_of()
    train(*hooked(expected, RECIPES[-1]), 8)
    wrapped, optimizer = hooked(first, RECIPES[-1])
    train(wrapped, optimizer, 5)
    with tempfile.TemporaryDirectory() as own:
        folder = Path(hvd.broadcast_object(own))
        hvd.save_checkpoint(folder / "c", optimizer, first)
        train(wrapped, optimizer, 1, start=100)
        wrapped, optimizer = hooked(second, RECIPES[-1])
        hvd.load_checkpoint(folder / "c", optimizer, second)
        hvd.barrier()
    train(wrapped, optimizer, 3, start=5)
    assert torch.equal(flat(second), flat(expected))


def sparse_embeddings() -> None:
    def run(wrap: bool) -> nn.Module:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(50, 8, sparse=True), nn.Flatten(), nn.Linear(24, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        called = DistributedDataParallel(model) if wrap else model
        if wrap:
            ddp.register(called, optimizer, compression=RECIPES[-1])
        else:
            hvd.DistributedOptimizer(optimizer, model.named_parameters(), RECIPES[-1])
        for step in range(5):
            generator = torch.Generator().manual_seed(10 * step + hvd.rank())
            optimizer.zero_grad()
            called(torch.randint(50, (6, 3), generator=generator)).square().sum().backward()
            optimizer.step()
        return model

    assert torch.equal(flat(run(wrap=True)), flat(run(wrap=False)))


def several_optimizers() -> None:
    expected, model = model_of(), model_of()

    def halves(net: nn.Module) -> list[torch.optim.Optimizer]:
        return [torch.optim.SGD(net[0].parameters(), lr=0.1), torch.optim.AdamW(net[2].parameters(), lr=0.01)]

    references = halves(expected)
    for reference in references:
        hvd.DistributedOptimizer(reference, expected.named_parameters(), RECIPES[-1])
    wrapped, optimizers = DistributedDataParallel(model), halves(model)
    ddp.register(wrapped, *optimizers, compression=RECIPES[-1])
    for step in range(6):
        for net, updating in ((expected, references), (wrapped, optimizers)):
            net.zero_grad()
            loss_of(net, step, hvd.rank(), hvd.size()).backward()
            for optimizer in updating:
                optimizer.step()
    assert torch.equal(flat(model), flat(expected))


def half_precision_parameters() -> None:
    expected, model = model_of(dtype=torch.bfloat16), model_of(dtype=torch.bfloat16)

    def run(net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        for step in range(6):
            optimizer.zero_grad()
            loss_of(net, step, hvd.rank(), hvd.size(), torch.bfloat16).backward()
            optimizer.step()

    run(expected, distributed(expected, RECIPES[-1]))
    run(*hooked(model, RECIPES[-1]))
    assert torch.equal(flat(model), flat(expected))


def misuse_is_named() -> None:
    model = model_of()
    with pytest.raises(ValueError, match=r"takes a DistributedDataParallel model, not a Sequential"):
        ddp.register(model, sgd(model))
    wrapped = DistributedDataParallel(model)
    with pytest.raises(ValueError, match=r"2 parameters are in none of the 1 optimizers \(2.weight, 2.bias\)"):
        ddp.register(wrapped, torch.optim.SGD(model[0].parameters(), lr=0.1))
    wrapped, optimizer = hooked(model, RECIPES[-1])
    loss_of(wrapped, 0).backward()
    with pytest.raises(RuntimeError, match=r"second backward\(\) has come before optimizer.step\(\)"):
        loss_of(wrapped, 0).backward()

    wrapped, optimizer = hooked(model_of(), RECIPES[-1])
    with wrapped.no_sync():
        loss_of(wrapped, 0).backward()
    with pytest.raises(RuntimeError, match=r"Parameter '0.weight' has a gradient that was not exchanged since"):
        optimizer.step()
    with pytest.raises(ValueError, match=r"within model.no_sync\(\)"):
        optimizer.set_backward_passes_per_step(2)

    wrapped, optimizer = hooked(model_of(), RECIPES[-1])
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(loss_of(wrapped, 0)).backward()
    with pytest.raises(RuntimeError, match="with a GradScaler's scale in them"):
        scaler.step(optimizer)

    hook = ddp.GradientHook("gradsa")
    wrapped = DistributedDataParallel(model_of())
    wrapped.register_comm_hook(None, hook.reduce)
    with pytest.raises(RuntimeError, match=r"no optimizer was attached"):
        loss_of(wrapped, 0).backward()


class EvaluatesTwice(torch.optim.SGD):
    """An optimizer of the user's own, which evaluates the closure again if the loss tells it to."""

    def step(self, closure=None):
        loss = closure()
        return super().step(closure) if loss > 0 else loss


def a_grad_scaler_with_a_dense_recipe() -> None:
    expected, model = model_of(), model_of()
    train(expected, distributed(expected, RECIPES[0]), 4)
    wrapped, optimizer = hooked(model, RECIPES[0])
    # A power of two changes no bit.
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for step in range(4):
        optimizer.zero_grad()
        scaler.scale(loss_of(wrapped, step, hvd.rank(), hvd.size())).backward()
        scaler.step(optimizer)
        scaler.update()
    assert torch.equal(flat(model), flat(expected))


def closures() -> None:
    """As Lightning calls step(): the loss is the ranks' mean where the optimizer may decide by it, else this rank's own."""

    def run(net: nn.Module, optimizer: torch.optim.Optimizer) -> list[tuple[float, float]]:
        losses = []
        for step in range(4):
            own = []

            def closure(step: int = step, own: list[float] = own) -> torch.Tensor:
                optimizer.zero_grad()
                loss = loss_of(net, step, hvd.rank(), hvd.size())
                loss.backward()
                own.append(loss.item())
                return loss

            losses.append((float(optimizer.step(closure).detach()), own[0]))
        return losses

    makers = [sgd, lambda net: EvaluatesTwice(net.parameters()), lambda net: torch.optim.LBFGS(net.parameters())]
    for make, own_loss in zip(makers, (True, False, False), strict=True):
        expected, model = model_of(), model_of()
        optimizer = make(expected)
        reference = run(expected, hvd.DistributedOptimizer(optimizer, expected.named_parameters()))
        wrapped, optimizer = DistributedDataParallel(model), make(model)
        ddp.register(wrapped, optimizer)
        losses = run(wrapped, optimizer)
        assert torch.equal(flat(model), flat(expected)), type(optimizer)
        everyone = hvd.allgather_object([returned for returned, _ in losses])
        if own_loss:
            assert [returned for returned, _ in losses] == [own for _, own in losses]
            assert len(set(map(tuple, everyone))) == hvd.size()
        else:
            assert losses == reference
            assert len(set(map(tuple, everyone))) == 1


def errors_of_the_exchange_are_raised_by_step() -> None:
    # The ranks do not agree on the recipe: all of them learn it, with its own type.
    if hvd.size() == 1:
        return
    recipe = hvd.TopK(density=0.1 if hvd.rank() == 0 else 0.2, minimum_elements=10)
    wrapped, optimizer = hooked(model_of(), recipe)
    loss_of(wrapped, 0).backward()
    with pytest.raises(hvd.HorovodInternalError, match="density"):
        optimizer.step()


CHECKS = [
    equal_to_the_distributed_optimizer,
    static_graph,
    unused_parameters,
    gradients_accumulate_within_no_sync,
    resuming_equals_no_interruption,
    sparse_embeddings,
    several_optimizers,
    half_precision_parameters,
    closures,
    a_grad_scaler_with_a_dense_recipe,
    errors_of_the_exchange_are_raised_by_step,
    misuse_is_named,
]


def print_hashes(way: str) -> None:
    """Train with each recipe and print what came of it, in one piece, since mpiexec mixes what ranks print."""
    lines = ""
    for recipe in RECIPES:
        model = model_of()
        train(*((model, distributed(model, recipe)) if way == "optimizer" else hooked(model, recipe)), 8)
        lines += f"{type(recipe).__name__} {hvd.rank()} {hvd.parameter_hash(model.parameters())}\n"
    print(lines, end="", flush=True)


if __name__ == "__main__":
    wanted = sys.argv[1:]
    if "RANK" in os.environ and wanted != ["optimizer"]:
        # As a script of DDP's users does, before register().
        dist.init_process_group("gloo")
    hvd.init()
    if wanted == ["optimizer"]:
        print_hashes("optimizer")
        sys.exit()
    start_torch()
    if wanted == ["hook"]:
        print_hashes("hook")
        CHECKS.clear()
    for check in CHECKS:
        if not wanted or check.__name__ in wanted:
            check()
            print(f"{check.__name__}: ok", flush=True)
            hvd.barrier()
    hvd.shutdown()
    dist.destroy_process_group()
