"""The passes over all elements, against reading and writing the same bytes and little else, on one core."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from benchmarks.codec.supports import example
from benchmarks.kernels import ELEMENTS, MOMENTUM, STREAM_BYTES, Step
from benchmarks.measure import ratio_of, rounds
from sparse_ring.encode import VALUE_NAMES
from sparse_ring.error_feedback import MomentumResidual
from sparse_ring.kernels.base import Floats, Kernels
from sparse_ring.kernels.table import kernels_for
from sparse_ring.select import ExactTopK, Scratch
from sparse_ring.sparse import SparseGradient

DENSITIES = (0.01, 0.001)
REPEATS = 21
STEPS = 100
WIDTH = 4096
PLAIN_BYTES = 12  # an element without velocity: gradient and residual read, residual written


def fused_pass(density: float) -> dict[str, Any]:
    """Rounds of the fused pass and of streams; the fastest stream is what it is measured by."""
    step, kernels = Step(density), kernels_for()

    def plain() -> int:
        return kernels.accumulate_select(
            step.gradient, None, step.residual, 0.0, False, step.threshold, step.indices, step.values
        )

    candidates: dict[str, Callable[[], object]] = {
        "fused": lambda: step.fused(kernels),
        "accumulate": lambda: kernels.accumulate(step.gradient, step.velocity, step.residual, MOMENTUM, False),
        "stream, numpy": step.numpy_stream,
        "stream, torch": step.torch_stream,
        "fused, no velocity": plain,
        "stream, numpy, no velocity": lambda: np.add(step.residual, step.gradient, out=step.residual),
        "stream, torch, no velocity": lambda: step.torch_state[2].add_(step.torch_state[0]),
    }
    seconds = rounds(candidates, REPEATS, before=step.reset)
    medians = {name: float(np.median(times)) for name, times in seconds.items()}
    figures: dict[str, Any] = {"elements": ELEMENTS, "density": density, "seconds": medians}
    for name, ending in (("with velocity", ""), ("without velocity", ", no velocity")):
        stream = min((f"stream, numpy{ending}", f"stream, torch{ending}"), key=medians.__getitem__)
        size = (PLAIN_BYTES if ending else STREAM_BYTES) * ELEMENTS / 1e9
        figures[name] = {
            "stream_gb_s": size / medians[stream],
            "fused_gb_s": size / medians[f"fused{ending}"],
            "share": ratio_of(seconds[stream], seconds[f"fused{ending}"]),
        }
    return figures


class Counting:
    """Kernels that count exact selections among all elements."""

    def __init__(self, kernels: Kernels, numel: int) -> None:
        self._kernels, self._numel, self.misses = kernels, numel, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernels, name)

    def kth_magnitude(self, x: Floats, k: int, scratch: Floats) -> float:
        """See :meth:`Kernels.kth_magnitude`."""
        self.misses += x.size == self._numel
        return self._kernels.kth_magnitude(x, k, scratch)


class Training:
    """A wide network on the digits, whose middle matrix of 16 Mi elements goes the way of GradSA on a single rank."""

    def __init__(self, density: float) -> None:
        torch.manual_seed(0)
        self.images, self.labels, *_ = example("digits").digits()
        self.model = nn.Sequential(
            nn.Flatten(), nn.Linear(64, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10)
        )
        self.weight = self.model[3].weight
        self.others = torch.optim.SGD(
            [p for p in self.model.parameters() if p is not self.weight], lr=0.02, momentum=0.9
        )
        self.keep = round(density * ELEMENTS)
        self.kernels: Any = Counting(kernels_for(), ELEMENTS)
        self.feedback, self.selector, self.scratch = MomentumResidual(ELEMENTS, self.kernels), ExactTopK(), Scratch()
        self.order = torch.Generator().manual_seed(0)
        self.code, self.loss = VALUE_NAMES["float16"], float("nan")

    def backward(self) -> Floats:
        """The gradient of the middle matrix on the next 32 images."""
        self.model.zero_grad()
        batch = torch.randint(len(self.images), (32,), generator=self.order)
        loss = cross_entropy(self.model(self.images[batch]), self.labels[batch])
        loss.backward()
        self.loss = loss.item()
        gradient: Floats = self.weight.grad.view(-1).numpy()  # type: ignore[union-attr]
        return gradient

    def select(self, gradient: Floats) -> SparseGradient:
        """The selector's step."""
        return self.selector.select(self.feedback, gradient, MOMENTUM, False, self.keep, self.kernels, self.scratch)

    def update(self, sparse: SparseGradient) -> None:
        """Send to oneself and step."""
        decoded = np.empty(sparse.count, np.float32)
        self.code.encode(sparse.values, np.empty(self.code.size(sparse.count), np.uint8), decoded, self.kernels)
        self.feedback.sent(SparseGradient(sparse.indices, decoded, ELEMENTS))
        kernels_for().scatter_add(self.weight.detach().view(-1).numpy(), sparse.indices, decoded, -0.02)
        self.others.step()


def selector_steps(density: float, progress: Callable[[str], None]) -> dict[str, Any]:
    """STEPS steps of the selector on a real residual, each beside a stream over as many bytes."""
    training = Training(density)
    stream = Step(density)
    streams = {"numpy": stream.numpy_stream, "torch": stream.torch_stream}
    stream.numpy_stream()
    seconds: dict[str, list[float]] = {"selector": [], "numpy": [], "torch": []}
    processor: dict[str, list[float]] = {name: [] for name in seconds}
    missed: list[int] = []

    def timed(name: str, call: Callable[[], Any]) -> Any:
        start, used = time.perf_counter(), time.thread_time()
        result = call()
        processor[name].append(time.thread_time() - used)
        seconds[name].append(time.perf_counter() - start)
        return result

    for step in range(STEPS):
        progress(f"selector at {density:.1%}, step {step} of {STEPS}")
        gradient = training.backward()
        before = training.kernels.misses
        calls: list[tuple[str, Callable[[], Any]]] = [
            *streams.items(), ("selector", lambda gradient=gradient: training.select(gradient))
        ]  # fmt: skip
        results = {name: timed(name, call) for name, call in (calls if step % 2 else reversed(calls))}
        if training.kernels.misses > before:
            missed.append(step)
        training.update(results["selector"])
    hits = [step for step in range(STEPS) if step not in missed]

    def share(times: dict[str, list[float]], steps: Sequence[int]) -> float:
        streamed = min(sum(times[name][step] for step in steps) for name in streams)
        return streamed / sum(times["selector"][step] for step in steps)

    fastest = min(streams, key=lambda name: sum(seconds[name]))
    size = STREAM_BYTES * ELEMENTS * STEPS / 1e9
    return {
        "density": density,
        "steps": STEPS,
        "misses": missed,
        "loss": training.loss,
        "stream_gb_s": size / sum(seconds[fastest]),
        "selector_gb_s": size / sum(seconds["selector"]),
        "hit_seconds": float(np.median([seconds["selector"][step] for step in hits])),
        "miss_seconds": float(np.median([seconds["selector"][step] for step in missed])) if missed else None,
        "share_of_totals": share(seconds, range(STEPS)),
        "share_of_processor": share(processor, range(STEPS)),
        "hit_share_of_processor": share(processor, hits),
        "share": ratio_of([seconds[fastest][step] for step in hits], [seconds["selector"][step] for step in hits]),
    }
