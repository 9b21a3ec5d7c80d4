"""Handwritten digits with Lightning on two processes: a callback lets its DDP strategy exchange compressed gradients.

python examples/ddp_lightning.py
"""

import argparse
import logging
import warnings

import lightning
import torch
from digits import digits, network
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import sparse_ring.ddp
import sparse_ring.torch as hvd


class Compressed(lightning.Callback):
    """Registers the hook on every device; Lightning's own ``DDPStrategy(ddp_comm_hook=…)`` is ignored on CPUs."""

    def on_fit_start(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """The model is wrapped, its optimizers are made, and no checkpoint has been loaded yet."""
        recipe = hvd.GradSA(density=0.01)
        sparse_ring.ddp.register(trainer.strategy.model, *trainer.optimizers, compression=recipe)


class Digits(lightning.LightningModule):
    """The network of digits.py."""

    def __init__(self) -> None:
        super().__init__()
        self.network = network()

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        """The loss of this rank's images."""
        images, labels = batch
        return cross_entropy(self.network(images), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Plain SGD: the callback makes it a distributed one."""
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=660)
    args = parser.parse_args()
    # Its tips and hints; what matters is still printed, and errors are raised.
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    lightning.seed_everything(0, verbose=False)
    images, labels, test_images, test_labels = digits()
    model = Digits()
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_steps=args.steps, callbacks=[Compressed()], logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(model, DataLoader(TensorDataset(images, labels), batch_size=32, shuffle=True))
    with torch.no_grad():
        correct = (model.network(test_images).argmax(1) == test_labels).float().mean().item()
    print(f"test accuracy {100 * correct:.2f} %, parameter hash {hvd.parameter_hash(model.parameters())}")
    hvd.shutdown()


if __name__ == "__main__":
    main()
