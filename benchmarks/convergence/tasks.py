"""What is trained: small enough for two cores, large enough that compression shows.

A task draws everything from a seed: weights, order of the examples, and where there are few of them the split as well, since
two equal ways to train differ by half a point of accuracy between splits.
"""

from __future__ import annotations

import math
import sysconfig
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import torch
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn.functional import cross_entropy

MOMENTUM = 0.9


class Task(ABC):
    """One data set, network and schedule.

    metric
        ``"accuracy"`` (share of the test set, more is better) or ``"loss"`` (nats a byte on held-out text, less is better).
    steps, every, batch
        Optimizer steps of a run, steps between evaluations, examples a step over all ranks.
    rates
        Learning rates that tuning tries.
    warmup_steps
        Of the recipes' densities.
    """

    metric: ClassVar[str]
    steps: ClassVar[int]
    every: ClassVar[int]
    batch: ClassVar[int]
    rates: ClassVar[tuple[float, ...]]
    warmup_steps: ClassVar[int]
    optimizer: ClassVar[Callable[..., torch.optim.Optimizer]] = torch.optim.SGD

    def __init__(self, seed: int) -> None:
        self.seed = seed

    @abstractmethod
    def network(self) -> nn.Module:
        """Return a fresh network; torch's generator has been seeded."""

    @abstractmethod
    def loss(self, model: nn.Module, step: int, rank: int, size: int) -> torch.Tensor:
        """Return the mean loss over this rank's share of a step's examples."""

    @abstractmethod
    def evaluate(self, model: nn.Module) -> float:
        """Return the metric."""

    def draw(self, step: int, examples: int) -> torch.Tensor:
        """Return the examples of a step: a part of a permutation that lasts an epoch."""
        each = examples // self.batch
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + step // each)
        return torch.randperm(examples, generator=generator)[step % each * self.batch :][: self.batch]


class _Classes(Task):
    """A table of examples with labels, split by the seed."""

    metric = "accuracy"

    def __init__(self, seed: int, inputs: torch.Tensor, labels: torch.Tensor, test: int) -> None:
        super().__init__(seed)
        split = train_test_split(range(len(labels)), test_size=test, random_state=seed, stratify=labels.numpy())
        here, there = (torch.tensor(part) for part in split)
        mean, deviation = inputs[here].mean(0), inputs[here].std(0).clamp(min=1e-3)
        inputs = (inputs - mean) / deviation
        self._train, self._test = (inputs[here], labels[here]), (inputs[there], labels[there])

    def loss(self, model: nn.Module, step: int, rank: int, size: int) -> torch.Tensor:
        """See :meth:`Task.loss`."""
        own = self.draw(step, len(self._train[1]))[rank::size]
        return cross_entropy(model(self._train[0][own]), self._train[1][own])

    def evaluate(self, model: nn.Module) -> float:
        """Return the share of the test set that is right."""
        with torch.no_grad():
            return float((model(self._test[0]).argmax(1) == self._test[1]).float().mean())


class Digits(_Classes):
    """Scikit-learn's digits (1,437 to train on, 360 to test), a CNN with 284 thousand parameters."""

    steps, every, batch, rates, warmup_steps = 440, 20, 64, (0.02, 0.05, 0.1), 60

    def __init__(self, seed: int) -> None:
        data = load_digits()
        images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1)
        super().__init__(seed, images, torch.tensor(data.target), 360)

    def network(self) -> nn.Module:
        """Two convolutions, two linear layers."""
        return nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, 10),
        )  # fmt: skip


class Cancer(_Classes):
    """Breast cancer (426 to train on, 143 to test), a perceptron with 280 thousand parameters."""

    steps, every, batch, rates, warmup_steps = 260, 20, 32, (0.005, 0.02, 0.05), 40

    def __init__(self, seed: int) -> None:
        data = load_breast_cancer()
        super().__init__(seed, torch.tensor(data.data, dtype=torch.float32), torch.tensor(data.target), 143)

    def network(self) -> nn.Module:
        """Three linear layers."""
        return nn.Sequential(nn.Linear(30, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 2))


class _Text(Task):
    """The source text of Python's standard library, byte by byte; every 20th file is held out."""

    metric = "loss"
    context: ClassVar[int]

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        texts = [file.read_bytes() for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))]
        parts = b"".join(text for i, text in enumerate(texts) if i % 20), b"".join(texts[::20])
        self._train, self._held_out = (torch.frombuffer(bytearray(part), dtype=torch.uint8).long() for part in parts)

    def pieces(self, step: int, rank: int, size: int) -> torch.Tensor:
        """Return this rank's pieces of a step, ``context + 1`` bytes each."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
        starts = torch.randint(len(self._train) - self.context, (self.batch,), generator=generator)[rank::size]
        return torch.stack([self._train[start : start + self.context + 1] for start in starts.tolist()])

    def held_out(self, count: int) -> torch.Tensor:
        """Return pieces of the held-out text, always the same."""
        starts = torch.linspace(0, len(self._held_out) - self.context - 1, count).long()
        return torch.stack([self._held_out[start : start + self.context + 1] for start in starts.tolist()])


class ByteMLP(_Text):
    """The next byte from the 64 before, by a perceptron with 9.7 million parameters."""

    steps, every, batch, rates, warmup_steps, context = 1200, 60, 256, (0.05, 0.1, 0.2), 160, 64

    def network(self) -> nn.Module:
        """An embedding of 32 a byte and three linear layers."""
        return nn.Sequential(
            nn.Embedding(256, 32), nn.Flatten(), nn.Linear(2048, 3072), nn.ReLU(), nn.Linear(3072, 1024), nn.ReLU(),
            nn.Linear(1024, 256),
        )  # fmt: skip

    def loss(self, model: nn.Module, step: int, rank: int, size: int) -> torch.Tensor:
        """See :meth:`Task.loss`."""
        pieces = self.pieces(step, rank, size)
        return cross_entropy(model(pieces[:, :-1]), pieces[:, -1])

    def evaluate(self, model: nn.Module) -> float:
        """Return the mean loss over 4,096 held-out bytes."""
        pieces = self.held_out(4096)
        with torch.no_grad():
            return float(cross_entropy(model(pieces[:, :-1]), pieces[:, -1]))


class ByteGPT(_Text):
    """A GPT over bytes with 4.9 million parameters, trained with AdamW."""

    steps, every, batch, rates, warmup_steps, context = 600, 50, 16, (5e-4, 1e-3, 2e-3), 80, 128
    optimizer = torch.optim.AdamW

    def network(self) -> nn.Module:
        """Six layers of width 256."""
        return _GPT(self.context)

    def loss(self, model: nn.Module, step: int, rank: int, size: int) -> torch.Tensor:
        """See :meth:`Task.loss`."""
        pieces = self.pieces(step, rank, size)
        return cross_entropy(model(pieces[:, :-1]).transpose(1, 2), pieces[:, 1:])

    def evaluate(self, model: nn.Module) -> float:
        """Return the mean loss over 64 held-out pieces."""
        pieces = self.held_out(64)
        with torch.no_grad():
            return float(cross_entropy(model(pieces[:, :-1]).transpose(1, 2), pieces[:, 1:]))


class _GPT(nn.Module):
    def __init__(self, context: int, width: int = 256, heads: int = 4, layers: int = 6) -> None:
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, width), nn.Parameter(torch.zeros(context, width))
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256)

    def forward(self, pieces: torch.Tensor) -> torch.Tensor:
        """Return scores of the next byte, ``[pieces, context, 256]``."""
        mask = nn.Transformer.generate_square_subsequent_mask(pieces.shape[1])
        hidden = self.layers(self.bytes(pieces) + self.places, mask, is_causal=True)
        scores: torch.Tensor = self.head(self.norm(hidden))
        return scores


TASKS: dict[str, type[Task]] = {"digits": Digits, "cancer": Cancer, "mlp": ByteMLP, "gpt": ByteGPT}


def better(metric: str, one: float, other: float) -> bool:
    """Return whether ``one`` is better than ``other``; what is not a number never is."""
    if math.isnan(one):
        return False
    return math.isnan(other) or (one > other if metric == "accuracy" else one < other)
