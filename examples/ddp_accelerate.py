"""Handwritten digits with Hugging Face's accelerate: one more line after ``prepare()``.

torchrun --nproc-per-node 2 examples/ddp_accelerate.py
"""

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from digits import digits, network
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import sparse_ring.ddp
import sparse_ring.torch as hvd


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=30)
    args = parser.parse_args()
    accelerator = Accelerator(cpu=True)
    set_seed(0)
    images, labels, test_images, test_labels = digits()
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    batches = DataLoader(TensorDataset(images, labels), batch_size=32, shuffle=True)
    model, optimizer, batches = accelerator.prepare(model, optimizer, batches)

    sparse_ring.ddp.register(model, optimizer, compression=hvd.GradSA(density=0.01))

    for _ in range(args.epochs):
        for inputs, targets in batches:
            optimizer.zero_grad()
            loss = cross_entropy(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
            hvd.report(loss=loss)

    with torch.no_grad():
        correct = (model(test_images).argmax(1) == test_labels).float().mean().item()
    print(f"test accuracy {100 * correct:.2f} %, parameter hash {hvd.parameter_hash(model.parameters())}")
    hvd.shutdown()
    accelerator.end_training()


if __name__ == "__main__":
    main()
