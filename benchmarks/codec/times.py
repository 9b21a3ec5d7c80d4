"""Nanoseconds a kept element of every index and value code, in large frames and in a small real one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.codec.supports import load
from benchmarks.golomb import uniform_support
from benchmarks.kernels import ELEMENTS, code_candidates
from benchmarks.measure import interleaved
from sparse_ring.kernels.base import Indices
from sparse_ring.kernels.table import kernels_for

REPEATS = 15
CALLS = 20  # of a small frame, in one timing


def repeated(call: Callable[[], object], times: int) -> Callable[[], object]:
    """Call so many times."""

    def all_of_them() -> None:
        for _ in range(times):
            call()

    return all_of_them


def nanoseconds(indices: Indices, numel: int, calls: int) -> dict[str, float]:
    """By code and direction."""
    candidates = {name: repeated(call, calls) for name, call in code_candidates(kernels_for(), indices, numel).items()}
    seconds = interleaved(candidates, REPEATS)
    return {name: 1e9 * time / calls / len(indices) for name, time in seconds.items()}


def measure() -> dict[str, Any]:
    """All frames by name."""
    largest = max(load(), key=lambda support: (len(support.indices), support.step))
    frames = {
        f"uniform {density:.1%} of 16 Mi": (uniform_support(ELEMENTS, int(density * ELEMENTS), seed=2), ELEMENTS, 1)
        for density in (0.01, 0.001)
    }
    frames[f"{largest.model}, {len(largest.indices)} of {largest.numel}"] = (largest.indices, largest.numel, CALLS)
    return {name: nanoseconds(*frame) for name, frame in frames.items()}
