"""How long compression takes on one thread, against the same work in torch and against the memory's own pace.

    python -m benchmarks.kernels [--json PATH]

16 Mi float32 elements. First momentum, residual, selection of 1 % and clearing of what was selected: the fused kernel and
update_residual, torch with the same threshold, torch with topk. Then nanoseconds a kept element of each code, and of the codes of
whole gradients the GB/s of float32 that they take in or put out, against copying the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.golomb import uniform_support
from benchmarks.measure import interleaved, parse_arguments, print_table, write_json
from sparse_ring import _native
from sparse_ring.encode import (
    INDEX_CHOICES,
    INDEX_CODES,
    VALUE_NAMES,
    WHOLE_NAMES,
    Coding,
    EveryIndex,
    Float32,
    IndexCode,
    ValueCode,
)
from sparse_ring.kernels.base import SPARE, Floats, Indices, Kernels
from sparse_ring.kernels.table import kernels_for

ELEMENTS = 1 << 24
DENSITY = 0.01
MOMENTUM = 0.9
STREAM_BYTES = 20  # an element: gradient, velocity, residual read; velocity, residual written
WHOLE_ELEMENTS = 1 << 22
REPEATS = 15
TARGETS = {"torch, threshold": 3.0, "torch, topk": 15.0}


class Step:
    """One compression step of a parameter, in several implementations over the same state."""

    def __init__(self, density: float = DENSITY) -> None:
        rng = np.random.default_rng(0)
        self.gradient, self.first_velocity, self.first_residual = (
            rng.standard_normal(ELEMENTS, dtype=np.float32) for _ in range(3)
        )
        self.velocity, self.residual = self.first_velocity.copy(), self.first_residual.copy()
        self.torch_state = [torch.from_numpy(x) for x in (self.gradient, self.velocity, self.residual)]
        self.scratch = torch.empty(ELEMENTS)
        self.k = int(density * ELEMENTS)
        self.indices = np.zeros(2 * self.k + SPARE, dtype=np.uint32)
        self.values = np.zeros(2 * self.k + SPARE, dtype=np.float32)
        kernels_for().accumulate(self.gradient, self.velocity, self.residual, MOMENTUM, False)
        self.threshold = kernels_for().kth_magnitude(self.residual, self.k, self.scratch.numpy())

    def reset(self) -> None:
        """Put the state back to where every step starts."""
        self.velocity[:] = self.first_velocity
        self.residual[:] = self.first_residual

    def fused(self, kernels: Kernels) -> int:
        """The pass over all elements."""
        return kernels.accumulate_select(
            self.gradient, self.velocity, self.residual, MOMENTUM, False, self.threshold, self.indices, self.values
        )

    def ours(self, kernels: Kernels) -> int:
        """The whole step by kernels; returns how many elements were selected."""
        count = self.fused(kernels)
        indices, values = self.indices[:count], self.values[:count]
        kernels.update_residual(self.residual, self.velocity, indices, values, values)
        return count

    def checked(self, kernels: Kernels) -> int:
        """The whole step as the pipeline runs it: a gradient that is not finite must change nothing."""
        return self.ours(kernels) if kernels.all_finite(self.gradient) else 0

    def _torch(self, select: Callable[[torch.Tensor], torch.Tensor]) -> int:
        gradient, velocity, residual = self.torch_state
        velocity.mul_(MOMENTUM).add_(gradient)
        residual.add_(velocity)
        indices = select(torch.abs(residual, out=self.scratch))
        values = residual[indices]
        residual.index_fill_(0, indices, 0)
        velocity.index_fill_(0, indices, 0)
        return len(values)

    def torch_threshold(self) -> int:
        """The whole step in torch, with the same threshold."""
        return self._torch(lambda magnitudes: (magnitudes >= self.threshold).nonzero().view(-1))

    def torch_topk(self) -> int:
        """The whole step in torch, with an exact top-k."""
        return self._torch(lambda magnitudes: torch.topk(magnitudes, self.k, sorted=False).indices)

    def numpy_stream(self) -> None:
        """Read and write the same bytes, and little else."""
        np.add(self.velocity, self.gradient, out=self.velocity)
        np.multiply(self.residual, np.float32(1), out=self.residual)

    def torch_stream(self) -> None:
        """The same in torch."""
        gradient, velocity, residual = self.torch_state
        velocity.add_(gradient)
        residual.mul_(1.0)


def measure_step() -> dict[str, Any]:
    """Milliseconds of one step in all implementations, and what follows from them."""
    step = Step()
    native = kernels_for()
    candidates: dict[str, Callable[[], object]] = {
        "sparse_ring": lambda: step.ours(native),
        "sparse_ring, finite check before": lambda: step.checked(native),
        "sparse_ring, fused pass alone": lambda: step.fused(native),
        **{f"sparse_ring, {name}": lambda name=name: step.ours(kernels_for(name)) for name in _native.supported()[:-1]},
        "torch, threshold": step.torch_threshold,
        "torch, topk": step.torch_topk,
        "stream, numpy": step.numpy_stream,
        "stream, torch": step.torch_stream,
    }
    for name in ("sparse_ring", "torch, threshold", "torch, topk"):
        step.reset()
        assert candidates[name]() == step.k, f"{name} selects another number of elements"
    seconds = interleaved(candidates, REPEATS, before=step.reset)
    stream = min(seconds["stream, numpy"], seconds["stream, torch"])
    rows = [
        [name, f"{1e3 * time:.2f}", f"{1e9 * time / ELEMENTS:.3f}", f"{time / seconds['sparse_ring']:.2f}"]
        for name, time in seconds.items()
    ]
    print_table(
        f"momentum + residual + select {DENSITY:.0%} + clear, {ELEMENTS} elements, kernels {native.name}, 1 thread",
        ["implementation", "ms", "ns/element", "x sparse_ring"],
        rows,
    )
    share = stream / seconds["sparse_ring, fused pass alone"]
    print(
        f"stream {STREAM_BYTES * ELEMENTS / stream / 1e9:.1f} GB/s; the fused pass runs at {share:.0%} of it (target 80%)"
    )
    for name, target in TARGETS.items():
        print(f"against {name}: {seconds[name] / seconds['sparse_ring']:.1f}x (target {target:.0f}x)")
    return {"elements": ELEMENTS, "density": DENSITY, "kernels": native.name, "seconds": seconds, "stream_share": share}


def index_candidates(
    kernels: Kernels, code: IndexCode, indices: Indices, numel: int
) -> dict[str, Callable[[], object]]:
    """Encoder and decoder of one index code over one support."""
    out = np.zeros(code.bound(len(indices), numel), dtype=np.uint8)
    payload = out[: code.encode(indices, numel, out, kernels)].copy()
    decoded = np.zeros_like(indices)
    return {
        f"{code.name} encode": lambda: code.encode(indices, numel, out, kernels),
        f"{code.name} decode": lambda: code.decode(payload, numel, decoded, kernels),
    }


def value_candidates(kernels: Kernels, code: ValueCode, values: Floats) -> dict[str, Callable[[], object]]:
    """Encoder and decoder of one value code."""
    out, decoded = np.zeros(code.size(len(values)), dtype=np.uint8), np.zeros_like(values)
    scale = code.encode(values, out, decoded, kernels)
    return {
        f"{code.name} encode": lambda: code.encode(values, out, decoded, kernels),
        f"{code.name} decode": lambda: code.decode(out, scale, decoded, kernels),
    }


def code_candidates(kernels: Kernels, indices: Indices, numel: int) -> dict[str, Callable[[], object]]:
    """Encoders and decoders over one support, and the choice among the index codes."""
    values: Floats = np.random.default_rng(3).standard_normal(len(indices), dtype=np.float32)
    candidates: dict[str, Callable[[], object]] = {}
    for index_code in INDEX_CODES.values():
        if not isinstance(index_code, EveryIndex):
            candidates |= index_candidates(kernels, index_code, indices, numel)
    candidates["auto choose"] = lambda: INDEX_CHOICES["auto"].choose(indices, numel, kernels)
    for value_code in VALUE_NAMES.values():
        if not isinstance(value_code, Float32):
            candidates |= value_candidates(kernels, value_code, values)
    return candidates


def measure_codes(density: float) -> dict[str, dict[str, float]]:
    """Nanoseconds a kept element by code and implementation; the NumPy twin is the peer."""
    names = [*reversed(_native.supported()), "reference"]
    kept = int(density * ELEMENTS)
    indices = uniform_support(ELEMENTS, kept, seed=2)
    by_name = {name: code_candidates(kernels_for(name), indices, ELEMENTS) for name in names}
    figures: dict[str, dict[str, float]] = {}
    for code in by_name[names[0]]:
        seconds = interleaved({name: by_name[name][code] for name in names}, 3 if "golomb" in code else REPEATS)
        figures[code] = {name: 1e9 * time / kept for name, time in seconds.items()}
    print_table(
        f"ns a kept element, {kept} of {ELEMENTS} ({density:.1%})",
        ["code", *names],
        [[code, *(f"{figures[code][name]:.2f}" for name in names)] for code in figures],
    )
    return figures


def measure_whole() -> dict[str, dict[str, float]]:
    """GB/s of float32 by code and implementation; encoding reads the values and writes what receivers see besides."""
    values: Floats = np.random.default_rng(4).standard_normal(WHOLE_ELEMENTS, dtype=np.float32)
    copied = np.empty_like(values)
    names = list(reversed(_native.supported()))
    candidates: dict[str, dict[str, Callable[[], object]]] = {
        "copy": {n: lambda: np.copyto(copied, values) for n in names}
    }
    for name in names:
        for code in WHOLE_NAMES.values():
            told = code.given(Coding(seed=1, scale=2.5))
            for what, call in value_candidates(kernels_for(name), told, values).items():
                candidates.setdefault(what, {})[name] = call
    figures = {}
    for what, calls in candidates.items():
        # The fastest of many: other work on the machine only ever slows a code down.
        seconds = interleaved(calls, 3 * REPEATS, summary=min)
        figures[what] = {name: 4e-9 * WHOLE_ELEMENTS / time for name, time in seconds.items()}
    print_table(
        f"whole gradients of {WHOLE_ELEMENTS} elements: GB/s of float32, 1 thread",
        ["code", *names],
        [[what, *(f"{figures[what][name]:.1f}" for name in names)] for what in figures],
    )
    return figures


def main() -> None:
    arguments = parse_arguments(__doc__)
    torch.set_num_threads(1)
    step = measure_step()
    codes = {f"{density:.1%}": measure_codes(density) for density in (0.001, 0.01)}
    whole = measure_whole()
    write_json(arguments.json, "kernels", {"step": step, "code_nanoseconds": codes, "whole_gigabytes": whole})


if __name__ == "__main__":
    main()
