"""What all arms train: one network, one data set, one order of images, so that only the exchange differs."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn.functional import cross_entropy

MOMENTUM = 0.9


def network(seed: int) -> nn.Module:
    """A convolutional network with 1.92 million parameters, 96 % of them in two matrices."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 64, 3, padding=1), nn.ReLU(),
        nn.Conv2d(64, 128, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(2048, 680), nn.ReLU(), nn.Linear(680, 640), nn.ReLU(), nn.Linear(640, 10),
    )  # fmt: skip


class Digits:
    """Scikit-learn's digits: each step's images, split among ranks, and the accuracy on the test set."""

    def __init__(self, rank: int, size: int, batch: int, seed: int) -> None:
        data = load_digits()
        images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1)
        split = train_test_split(range(len(images)), test_size=360, random_state=0, stratify=data.target)
        train, test = (torch.tensor(part) for part in split)
        labels = torch.tensor(data.target)
        images = (images - images[train].mean()) / images[train].std()
        self._images, self._labels = images[train], labels[train]
        self._test = images[test], labels[test]
        self._rank, self._size, self._batch, self._seed = rank, size, batch, seed

    def batch(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return this rank's images and labels of a step; ``batch`` of them."""
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + step)
        whole = torch.randint(len(self._images), (self._batch * self._size,), generator=generator)
        mine = whole[self._rank :: self._size]
        return self._images[mine], self._labels[mine]

    def accuracy(self, model: nn.Module) -> float:
        """Return the share of test images that a model gets right."""
        with torch.no_grad():
            return float((model(self._test[0]).argmax(1) == self._test[1]).float().mean())


def loss_of(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Return the loss of one batch."""
    return cross_entropy(model(batch[0]), batch[1])
