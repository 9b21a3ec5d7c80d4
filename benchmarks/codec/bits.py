"""Bits an index: every code against log2 C(n, k) / k, on uniform supports and on those of real gradients."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from benchmarks.codec.supports import Support, load
from benchmarks.golomb import limit_bits, uniform_support
from sparse_ring.encode import INDEX_CHOICES
from sparse_ring.kernels.base import Indices
from sparse_ring.kernels.table import kernels_for

CODES = list(INDEX_CHOICES)
UNIFORM = ((1 << 24, 0.001), (1 << 24, 0.01), (1 << 24, 0.1))


def payload_bytes(code: str, indices: Indices, numel: int) -> int:
    """What a code writes, or would: ``tests`` hold it to that."""
    kernels = kernels_for()
    return INDEX_CHOICES[code].choose(indices, numel, kernels).size(indices, numel, kernels)


def choices(n: float, k: float) -> float:
    """log2 C(n, k)."""
    return (math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)) / math.log(2)


def counted_bits(support: Support, axis: int) -> float:
    """Bits of a code that tells how many indices each row (axis 0) or column (1) has, and then which: all ways equally likely."""
    rows = support.shape[0]
    columns = support.numel // rows
    lines, each = (rows, columns) if axis == 0 else (columns, rows)
    of = support.indices // columns if axis == 0 else support.indices % columns
    counts = np.bincount(of, minlength=lines)
    told = choices(len(support.indices) + lines - 1, lines - 1)
    return told + sum(choices(each, int(count)) for count in counts if count)


def totals(supports: Iterable[Support]) -> dict[str, Any]:
    """Bits an index over several frames; the limit is that of each frame by itself."""
    found = list(supports)
    kept = sum(len(s.indices) for s in found)
    figures: dict[str, Any] = {
        "frames": len(found),
        "kept": kept,
        "limit_bits": sum(choices(s.numel, len(s.indices)) for s in found) / kept,
    }
    for code in CODES:
        figures[f"{code}_bits"] = 8 * sum(payload_bytes(code, s.indices, s.numel) for s in found) / kept
    figures["row_counts_bits"] = sum(counted_bits(s, 0) for s in found) / kept
    figures["column_counts_bits"] = sum(counted_bits(s, 1) for s in found) / kept
    return figures


def uniform() -> list[dict[str, Any]]:
    """Bits an index on uniform supports."""
    rows = []
    for numel, density in UNIFORM:
        k = round(density * numel)
        indices = uniform_support(numel, k, seed=1)
        row = {"density": density, "kept": k, "limit_bits": limit_bits(numel, k)}
        rows.append(row | {f"{code}_bits": 8 * payload_bytes(code, indices, numel) / k for code in CODES})
    return rows


def real() -> dict[str, Any]:
    """Bits an index on captured supports: by model and density, and by parameter."""
    supports = load()
    groups: dict[str, list[Support]] = {}
    parameters: dict[str, list[Support]] = {}
    for support in supports:
        name = f"{support.model}, {support.density:.1%}"
        groups.setdefault(name, []).append(support)
        shape = "×".join(str(extent) for extent in support.shape)
        parameters.setdefault(f"{name}, {support.parameter} ({shape})", []).append(support)
    return {
        "groups": {name: totals(found) for name, found in groups.items()},
        "parameters": {name: totals(found) for name, found in parameters.items()},
    }
