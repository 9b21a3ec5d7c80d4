"""How many bits an index takes: the index codes against the information it carries.

    python -m benchmarks.golomb [--json PATH]

Uniform supports of n = 16 Mi elements. The limit is log2 C(n, k) / k bits a kept element; the codes count everything of a
message but its values: payload, directory, padding, 44 bytes of message and frame headers. Then supports of other shapes, and
how near the automatic choice comes to the best single code.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from benchmarks.measure import parse_arguments, print_table, write_json
from sparse_ring.encode import INDEX_CHOICES, CodecChoice
from sparse_ring.kernels.base import Indices
from sparse_ring.kernels.table import kernels_for
from sparse_ring.message import MessageWriter
from sparse_ring.sparse import SparseGradient

ELEMENTS = 1 << 24
DENSITIES = [0.0001, 0.001, 0.01, 0.059, 0.1, 0.3]
TARGET = 0.02  # above the limit, for Golomb up to TARGET_DENSITY
TARGET_DENSITY = 0.1
CHOICE_TARGET = 0.01  # above the best single code, for the automatic choice
CODES = list(INDEX_CHOICES)


def limit_bits(n: int, k: int) -> float:
    """log2 C(n, k) / k."""
    nats = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return nats / math.log(2) / k


def uniform_support(n: int, k: int, seed: int) -> Indices:
    """``k`` of ``n`` positions, each subset equally likely."""
    return np.sort(np.random.default_rng(seed).choice(n, k, replace=False)).astype(np.uint32)


def message_bits(sparse: SparseGradient, code: str) -> float:
    """Bits a kept element of a message with this one frame, its values taken off."""
    kernels = kernels_for()
    writer = MessageWriter(kernels)
    writer.begin(step=0, plan=0)
    codec = CodecChoice.named(code, "float32").choose(sparse, kernels)
    writer.add_sparse(0, sparse, codec, np.empty_like(sparse.values))
    return 8 * (writer.finish().size - sparse.values.nbytes) / sparse.count


def measure(density: float) -> dict[str, Any]:
    """Bits a kept element of every code at one density."""
    k = round(density * ELEMENTS)
    sparse = SparseGradient(uniform_support(ELEMENTS, k, seed=1), np.ones(k, dtype=np.float32), ELEMENTS)
    limit = limit_bits(ELEMENTS, k)
    figures = {"density": density, "kept": k, "limit_bits": limit}
    for code in CODES:
        bits = message_bits(sparse, code)
        figures |= {f"{code}_bits": bits, f"{code}_excess": bits / limit - 1}
    return figures


def shapes() -> dict[str, Indices]:
    """Supports that gradients of embeddings, dead units and whole filters leave, beside evenly spread ones."""
    rng = np.random.default_rng(4)
    clusters = rng.normal(0, 300, (500, 200)) + np.linspace(5000, ELEMENTS - 5000, 500)[:, np.newaxis]
    rows = rng.choice(ELEMENTS // 512, 300, replace=False)
    found = {
        "uniform 0.001 %": rng.integers(0, ELEMENTS, 170),
        "uniform 1 %": rng.integers(0, ELEMENTS, ELEMENTS // 100),
        "uniform 60 %": np.flatnonzero(rng.random(ELEMENTS) < 0.6),
        "500 clusters": clusters.astype(np.int64),
        "300 whole rows of 512": (rows[:, np.newaxis] * 512 + np.arange(512)),
        "one row in 8, 10 % of it": np.flatnonzero(
            (rng.random(ELEMENTS) < 0.1) & (np.arange(ELEMENTS) // 512 % 8 == 0)
        ),
        "every 100th": np.arange(0, ELEMENTS, 100),
        "8 in each 512th block": (np.arange(16)[:, np.newaxis] * (ELEMENTS // 16) + np.arange(7, 65536, 8192)),
    }
    return {name: np.unique(indices).astype(np.uint32) for name, indices in found.items()}


def measure_choice() -> list[dict[str, Any]]:
    """Bits a kept element of every code on each shape, and how much the automatic choice is above the best single code."""
    rows = []
    for name, indices in shapes().items():
        sparse = SparseGradient(indices, np.ones(len(indices), dtype=np.float32), ELEMENTS)
        bits = {code: message_bits(sparse, code) for code in CODES}
        best = min(bits[code] for code in CODES if code != "auto")
        rows.append({"shape": name, "kept": len(indices), "bits": bits, "auto_excess": bits["auto"] / best - 1})
    return rows


def main() -> None:
    arguments = parse_arguments(__doc__)
    rows = [measure(density) for density in DENSITIES]
    print_table(
        f"bits a kept element, n = {ELEMENTS}, everything but the values counted; golomb against the limit",
        ["density", "limit", *CODES, "golomb above limit"],
        [
            [
                f"{row['density']:.2%}",
                f"{row['limit_bits']:.4f}",
                *(f"{row[f'{code}_bits']:.4f}" for code in CODES),
                f"{row['golomb_excess']:+.2%}",
            ]
            for row in rows
        ],
    )
    worst = max(row["golomb_excess"] for row in rows if row["density"] <= TARGET_DENSITY)
    print(f"golomb at most {worst:+.2%} above the limit up to {TARGET_DENSITY:.0%}; target {TARGET:+.0%}")
    choice = measure_choice()
    print_table(
        "bits a kept element by shape",
        ["shape", *CODES, "auto above best"],
        [
            [row["shape"], *(f"{row['bits'][code]:.3f}" for code in CODES), f"{row['auto_excess']:+.2%}"]
            for row in choice
        ],
    )
    print(
        f"auto at most {max(row['auto_excess'] for row in choice):+.2%} above the best code; target {CHOICE_TARGET:+.0%}"
    )
    write_json(arguments.json, "golomb", {"elements": ELEMENTS, "rows": rows, "choice": choice})


if __name__ == "__main__":
    main()
