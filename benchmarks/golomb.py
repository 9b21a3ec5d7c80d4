"""How many bits an index takes: the index codes against the information it carries.

    python -m benchmarks.golomb [--json PATH]

Uniform supports of n = 16 Mi elements. The limit is log2 C(n, k) / k bits a kept element; the codes count their payload
and 44 bytes of message and frame headers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from benchmarks.measure import parse_arguments, print_table, write_json
from sparse_ring.kernels.base import Indices, bitpack_bound, golomb_bound
from sparse_ring.kernels.table import kernels_for

ELEMENTS = 1 << 24
HEADER_BYTES = 20 + 24  # message, frame
DENSITIES = [0.0001, 0.001, 0.01, 0.059, 0.1]
TARGET = 0.02  # above the limit, for Golomb


def limit_bits(n: int, k: int) -> float:
    """log2 C(n, k) / k."""
    nats = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return nats / math.log(2) / k


def uniform_support(n: int, k: int, seed: int) -> Indices:
    """``k`` of ``n`` positions, each subset equally likely."""
    return np.sort(np.random.default_rng(seed).choice(n, k, replace=False)).astype(np.uint32)


def measure(density: float) -> dict[str, Any]:
    """Bits a kept element of both codes at one density."""
    kernels = kernels_for()
    k = round(density * ELEMENTS)
    indices = uniform_support(ELEMENTS, k, seed=1)
    out = np.zeros(max(golomb_bound(k, ELEMENTS), bitpack_bound(k)), dtype=np.uint8)
    limit = limit_bits(ELEMENTS, k)
    golomb = 8 * (kernels.golomb_encode(indices, ELEMENTS, out) + HEADER_BYTES) / k
    bitpack = 8 * (kernels.bitpack_encode(indices, ELEMENTS, out) + HEADER_BYTES) / k
    return {
        "density": density,
        "kept": k,
        "limit_bits": limit,
        "golomb_bits": golomb,
        "golomb_excess": golomb / limit - 1,
        "bitpack_bits": bitpack,
        "bitpack_excess": bitpack / limit - 1,
    }


def main() -> None:
    arguments = parse_arguments(__doc__)
    rows = [measure(density) for density in DENSITIES]
    print_table(
        f"bits a kept element, n = {ELEMENTS}, {HEADER_BYTES} header bytes counted",
        ["density", "limit", "golomb", "above limit", "bitpack", "above limit"],
        [
            [
                f"{row['density']:.2%}",
                f"{row['limit_bits']:.4f}",
                f"{row['golomb_bits']:.4f}",
                f"{row['golomb_excess']:+.2%}",
                f"{row['bitpack_bits']:.4f}",
                f"{row['bitpack_excess']:+.2%}",
            ]
            for row in rows
        ],
    )
    worst = max(row["golomb_excess"] for row in rows)
    print(f"golomb at most {worst:+.2%} above the limit; target {TARGET:+.0%}")
    write_json(arguments.json, "golomb", {"elements": ELEMENTS, "header_bytes": HEADER_BYTES, "rows": rows})


if __name__ == "__main__":
    main()
