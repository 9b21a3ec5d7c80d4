"""Lightning's own registration of hooks, and its checkpoints; started by tests/test_ddp.py. ``ddp_lightning.py FOLDER``."""

import os
import sys
from pathlib import Path

import lightning
import torch
import torch.distributed as dist
from lightning.pytorch.overrides.distributed import _register_ddp_comm_hook
from torch.nn.parallel import DistributedDataParallel

import sparse_ring.torch as hvd
from sparse_ring import ddp
from sparse_ring.optimizer.wrapping import distributed as distributed_of
from tests.optimizer.models import flat, loss_of, model_of
from tests.ranks.ddp import RECIPES, distributed, sgd, train

# Lightning then starts no processes itself.
os.environ["LOCAL_RANK"] = os.environ["RANK"]
RECIPE = RECIPES[-1]


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.network = model_of()

    def training_step(self, batch: torch.Tensor) -> torch.Tensor:
        return loss_of(self.network, int(batch), self.global_rank, 2)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return sgd(self)


class Registers(lightning.Callback):
    """``loaded``: the exchange's state when training starts, after a checkpoint was loaded."""

    def on_fit_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        ddp.register(trainer.strategy.model, *trainer.optimizers, compression=RECIPE)

    def on_train_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        self.loaded = distributed_of(trainer.optimizers[0]).state_dict()["sparse_ring"]


def fit(steps: int, checkpoint: str | None = None) -> tuple[Module, lightning.Trainer, Registers]:
    module, callback = Module(), Registers()
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_steps=steps, callbacks=[callback], logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, use_distributed_sampler=False,
    )  # fmt: skip
    trainer.fit(module, torch.utils.data.DataLoader(torch.arange(8), batch_size=1), ckpt_path=checkpoint)
    return module, trainer, callback


def same(one: object, other: object) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


if __name__ == "__main__":
    file = str(Path(sys.argv[1]) / "saved.ckpt")
    module, trainer, _ = fit(6)
    expected = model_of()
    train(expected, distributed(expected, RECIPE), 6)
    assert torch.equal(flat(module.network), flat(expected)), "Trainer.fit"

    trainer.save_checkpoint(file)
    saved = torch.load(file, weights_only=False)["optimizer_states"][0]["sparse_ring"]
    resumed, _, callback = fit(8, file)
    assert same(callback.loaded, saved) == (hvd.rank() == 0), "loaded"
    assert len(set(hvd.allgather_object(hvd.parameter_hash(resumed.parameters())))) == 1

    model, expected = model_of(), model_of()
    hook, optimizer = ddp.GradientHook(RECIPE), sgd(model)
    wrapped = DistributedDataParallel(model)
    _register_ddp_comm_hook(wrapped, None, hook.reduce)
    hook.attach(model.named_parameters(), optimizer)
    train(wrapped, optimizer, 6)
    train(expected, distributed(expected, RECIPE), 6)
    assert torch.equal(flat(model), flat(expected)), "Lightning's helper"
    print("lightning: ok", flush=True)
    hvd.shutdown()
    dist.destroy_process_group()
