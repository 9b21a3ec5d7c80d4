"""Supports of real gradients: which elements GradSA selects in the training of the two examples.

``capture`` trains them anew and writes ``supports.npz``, which is small enough to lie in git; ``load`` reads it. One
process plays both ranks, with what each would have: batches, residuals, velocities and selectors of its own, values through
float16. Rank 0's supports are kept.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from sparse_ring.encode import VALUE_NAMES
from sparse_ring.kernels.base import Indices
from sparse_ring.kernels.table import kernels_for
from sparse_ring.recipe import GradSA
from sparse_ring.select import Scratch
from sparse_ring.sparse import SparseGradient

FILE = Path(__file__).with_name("supports.npz")
EXAMPLES = Path(__file__).parents[2] / "examples"
DENSITIES = (0.01, 0.001)
STEPS = 320
KEPT_STEPS = (140, 200, 260, 319)  # after the warm-up of 100
RANKS = 2


@dataclass(frozen=True)
class Support:
    """What one parameter sent in one step: strictly increasing ``indices`` in a parameter of this shape."""

    model: str
    density: float
    step: int
    parameter: str
    shape: tuple[int, ...]
    indices: Indices

    @property
    def numel(self) -> int:
        """Number of elements of the parameter."""
        return int(np.prod(self.shape))


@dataclass(frozen=True)
class Task:
    """A model with the loss of a rank at a step, and the optimizer of the example."""

    name: str
    model: nn.Module
    loss: Callable[[int, int], torch.Tensor]
    optimizer: torch.optim.Optimizer
    momentum: float


def example(name: str) -> ModuleType:
    """Load an example, which is no package."""
    specification = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def digits_task() -> Task:
    """The CNN of ``examples/digits.py``; GradSA takes the momentum over."""
    torch.manual_seed(0)
    module = example("digits")
    images, labels, *_ = module.digits()
    model = module.network()
    order = torch.Generator().manual_seed(0)
    batches = [torch.randperm(len(images), generator=order)[:64] for _ in range(STEPS)]

    def loss(step: int, rank: int) -> torch.Tensor:
        mine = batches[step][rank::RANKS]
        return cross_entropy(model(images[mine]), labels[mine])

    return Task("digits CNN", model, loss, torch.optim.SGD(model.parameters(), lr=0.05), 0.9)


def language_task() -> Task:
    """The byte-level GPT of ``examples/stdlib_lm.py``; AdamW has no momentum to take over."""
    torch.manual_seed(0)
    module = example("stdlib_lm")
    text, _ = module.library()
    model = module.GPT()

    def loss(step: int, rank: int) -> torch.Tensor:
        draw = torch.Generator().manual_seed(step)
        starts = torch.randint(len(text) - module.CONTEXT, (16,), generator=draw)[rank::RANKS]
        value: torch.Tensor = model(text, starts, False)
        return value

    return Task("byte LM", model, loss, torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01), 0.0)


class Rank:
    """Error feedback and selectors of one rank."""

    def __init__(self, recipe: GradSA, parameters: dict[str, nn.Parameter]) -> None:
        self.recipe, self.kernels, self.scratch = recipe, kernels_for(), Scratch()
        self.parts = {
            name: (recipe.error_feedback(parameter.numel(), self.kernels), recipe.selector())
            for name, parameter in parameters.items()
            if recipe.is_sparse(tuple(parameter.shape))
        }

    def send(self, name: str, gradient: np.ndarray, step: int, momentum: float) -> SparseGradient | np.ndarray:
        """What receivers see of this gradient; it leaves the residual."""
        keep = self.recipe.keep(gradient.size, step)
        if name not in self.parts:
            return gradient
        feedback, selector = self.parts[name]
        if keep == gradient.size:
            feedback.accumulate(gradient, momentum, False)
            sent = feedback.accumulated.copy()
            feedback.sent_all(sent)
            return sent
        chosen = selector.select(feedback, gradient, momentum, False, keep, self.kernels, self.scratch)
        code, decoded = VALUE_NAMES["float16"], np.empty(chosen.count, np.float32)
        code.encode(chosen.values, np.empty(code.size(chosen.count), np.uint8), decoded, self.kernels)
        sparse = SparseGradient(chosen.indices.copy(), decoded, chosen.numel)
        feedback.sent(sparse)
        return sparse


def train(task: Task, density: float) -> Iterator[Support]:
    """Train, and yield what rank 0 sends in the steps to keep."""
    recipe = GradSA(density=density)
    parameters = {name: p for name, p in task.model.named_parameters() if p.requires_grad}
    ranks = [Rank(recipe, parameters) for _ in range(RANKS)]
    for step in range(STEPS):
        sums = {name: np.zeros(p.numel(), np.float32) for name, p in parameters.items()}
        for number, rank in enumerate(ranks):
            task.model.zero_grad()
            task.loss(step, number).backward()
            for name, parameter in parameters.items():
                assert parameter.grad is not None
                gradient = parameter.grad.reshape(-1).numpy().copy()
                sent = rank.send(name, gradient, step, task.momentum)
                dense = sent.to_dense() if isinstance(sent, SparseGradient) else sent
                sums[name] += dense / RANKS
                if number == 0 and step in KEPT_STEPS and isinstance(sent, SparseGradient):
                    yield Support(task.name, density, step, name, tuple(parameter.shape), sent.indices)
        for name, parameter in parameters.items():
            parameter.grad = torch.from_numpy(sums[name].reshape(parameter.shape))
        task.optimizer.step()
        if step % 10 == 0:
            print(f"\r{task.name}, {density:.1%}: step {step} of {STEPS} …  ", end="", file=sys.stderr, flush=True)


def save(supports: list[Support], path: Path = FILE) -> None:
    """Write supports; the gaps of all of them lie in one array, which deflates best."""
    meta: list[list[Any]] = [[s.model, s.density, s.step, s.parameter, list(s.shape), len(s.indices)] for s in supports]
    gaps = [np.diff(s.indices.astype(np.int64), prepend=-1) - 1 for s in supports]
    joined = np.concatenate(gaps).astype("<u4")
    planes = joined.view(np.uint8).reshape(-1, 4).T.copy()
    np.savez_compressed(path, meta=np.frombuffer(json.dumps(meta).encode(), np.uint8), planes=planes)


def load(path: Path = FILE) -> list[Support]:
    """Read what ``save`` wrote."""
    with np.load(path) as file:
        meta = json.loads(file["meta"].tobytes())
        gaps = file["planes"].T.copy().view("<u4").reshape(-1).astype(np.int64)
    supports, start = [], 0
    for model, density, step, parameter, shape, count in meta:
        indices = (np.cumsum(gaps[start : start + count] + 1) - 1).astype(np.uint32)
        supports.append(Support(model, density, step, parameter, tuple(shape), indices))
        start += count
    return supports


def capture() -> None:
    """Train both examples at both densities and write the file."""
    torch.set_num_threads(1)
    supports = [
        support for density in DENSITIES for task in (digits_task, language_task) for support in train(task(), density)
    ]
    save(supports)
    print(f"\n{len(supports)} supports in {FILE.name}, {FILE.stat().st_size / 1e3:.0f} kB", file=sys.stderr)
