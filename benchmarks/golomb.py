"""How many bits an index takes: the index codes against the information it carries.

    python -m benchmarks.golomb [--json PATH]

Uniform supports of n = 16 Mi elements. The limit is log2 C(n, k) / k bits a kept element; the codes count everything of a
message but its values: payload, directory, padding, 44 bytes of message and frame headers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from benchmarks.measure import parse_arguments, print_table, write_json
from sparse_ring.encode import Codec
from sparse_ring.kernels.base import Indices
from sparse_ring.kernels.table import kernels_for
from sparse_ring.message import MessageWriter
from sparse_ring.sparse import SparseGradient

ELEMENTS = 1 << 24
DENSITIES = [0.0001, 0.001, 0.01, 0.059, 0.1]
TARGET = 0.02  # above the limit, for Golomb


def limit_bits(n: int, k: int) -> float:
    """log2 C(n, k) / k."""
    nats = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return nats / math.log(2) / k


def uniform_support(n: int, k: int, seed: int) -> Indices:
    """``k`` of ``n`` positions, each subset equally likely."""
    return np.sort(np.random.default_rng(seed).choice(n, k, replace=False)).astype(np.uint32)


def message_bits(sparse: SparseGradient, code: str) -> float:
    """Bits a kept element of a message with this one frame, its values taken off."""
    writer = MessageWriter(kernels_for())
    writer.begin(step=0, plan=0)
    writer.add_sparse(0, sparse, Codec.named(code, "float32"), np.empty_like(sparse.values))
    return 8 * (writer.finish().size - sparse.values.nbytes) / sparse.count


def measure(density: float) -> dict[str, Any]:
    """Bits a kept element of both codes at one density."""
    k = round(density * ELEMENTS)
    sparse = SparseGradient(uniform_support(ELEMENTS, k, seed=1), np.ones(k, dtype=np.float32), ELEMENTS)
    limit = limit_bits(ELEMENTS, k)
    figures = {"density": density, "kept": k, "limit_bits": limit}
    for code in ("golomb", "bitpack"):
        bits = message_bits(sparse, code)
        figures |= {f"{code}_bits": bits, f"{code}_excess": bits / limit - 1}
    return figures


def main() -> None:
    arguments = parse_arguments(__doc__)
    rows = [measure(density) for density in DENSITIES]
    print_table(
        f"bits a kept element, n = {ELEMENTS}, everything but the values counted",
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
    write_json(arguments.json, "golomb", {"elements": ELEMENTS, "rows": rows})


if __name__ == "__main__":
    main()
