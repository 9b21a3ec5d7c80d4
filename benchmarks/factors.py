"""How fast products of a gradient matrix with skinny factors are on one thread, against NumPy, torch and the memory's own pace.

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.factors [--json PATH]

A matrix of 4096 x 4096 float32 elements and factors of 1 to 32 columns: the arithmetic of low-rank compression (PowerSGD). Figures
are GB/s of the bytes that must move: the matrix once for a product, and for ``outer`` the residual read and written and the result
written. The stream figures move as many and compute little. Peers may add in any order and fuse, which gives other bits elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.measure import interleaved, parse_arguments, print_table, write_json
from sparse_ring import _native
from sparse_ring.kernels.base import Kernels
from sparse_ring.kernels.table import kernels_for

ROWS = COLUMNS = 4096
RANKS = (1, 2, 4, 8, 16, 32)
REPEATS = 9
BYTES = {"right": 4, "left": 4, "outer": 12, "orthonormalise": 4}  # an element of the matrix; of the factor in the last


class Products:
    """One matrix with factors of so many columns, and each kernel's peers over the same arrays."""

    def __init__(self, rank: int) -> None:
        rng = np.random.default_rng(0)
        self.rank, self.shape = rank, (ROWS, COLUMNS, rank)
        self.matrix, self.out = (
            rng.standard_normal(ROWS * COLUMNS, dtype=np.float32),
            np.zeros(ROWS * COLUMNS, np.float32),
        )
        self.left, self.right = (rng.standard_normal(size * rank, dtype=np.float32) for size in (ROWS, COLUMNS))
        self.made_left, self.made_right = np.zeros_like(self.left), np.zeros_like(self.right)
        # The peers' factors have their natural layout: rows of `rank` elements.
        self.square, self.square_out = self.matrix.reshape(ROWS, COLUMNS), self.out.reshape(ROWS, COLUMNS)
        self.p, self.q = (np.ascontiguousarray(x.reshape(rank, -1).T) for x in (self.left, self.right))
        self.torch = [torch.from_numpy(x) for x in (self.square, self.square_out, self.p, self.q)]

    def ours(self, kernels: Kernels) -> dict[str, Callable[[], object]]:
        """The four kernels."""
        return {
            "right": lambda: kernels.skinny_right(self.matrix, *self.shape, self.right, self.made_left),
            "left": lambda: kernels.skinny_left(self.matrix, *self.shape, self.left, self.made_right),
            "outer": lambda: kernels.skinny_outer(self.left, self.right, *self.shape, self.matrix, self.out),
            "orthonormalise": lambda: kernels.orthonormalise(self.left.copy(), ROWS, self.rank),
        }

    def numpy(self) -> dict[str, Callable[[], object]]:
        """The same in NumPy."""

        def outer() -> None:
            np.matmul(self.p, self.q.T, out=self.square_out)
            np.subtract(self.square, self.square_out, out=self.square)

        return {
            "right": lambda: self.square @ self.q,
            "left": lambda: self.square.T @ self.p,
            "outer": outer,
            "orthonormalise": lambda: np.linalg.qr(self.p),
        }

    def in_torch(self) -> dict[str, Callable[[], object]]:
        """The same in torch."""
        matrix, out, p, q = self.torch

        def outer() -> None:
            torch.mm(p, q.T, out=out)
            matrix.sub_(out)

        return {
            "right": lambda: matrix @ q,
            "left": lambda: matrix.T @ p,
            "outer": outer,
            "orthonormalise": lambda: torch.linalg.qr(p),
        }

    def stream(self) -> dict[str, Callable[[], object]]:
        """As many bytes, read, or read and written."""
        half = len(self.matrix) // 2
        update = lambda: np.add(self.matrix, self.out, out=self.matrix)  # noqa: E731
        read = lambda: np.dot(self.matrix[:half], self.matrix[half:])  # noqa: E731
        return {"right": read, "left": read, "outer": update}


def measure(rank: int) -> dict[str, dict[str, float]]:
    """Seconds of each kernel by implementation."""
    products = Products(rank)
    implementations = {
        **{name: products.ours(kernels_for(name)) for name in reversed(_native.supported())},
        "numpy": products.numpy(),
        "torch": products.in_torch(),
        "stream": products.stream(),
    }
    return {
        kernel: interleaved(
            {name: calls[kernel] for name, calls in implementations.items() if kernel in calls}, REPEATS
        )
        for kernel in BYTES
    }


def main() -> None:
    arguments = parse_arguments(__doc__)
    torch.set_num_threads(1)
    seconds: dict[str, dict[str, dict[str, float]]] = {f"{rank}": measure(rank) for rank in RANKS}
    for kernel, size in BYTES.items():
        names = list(seconds["1"][kernel])
        moved = {rank: size * ROWS * (int(rank) if kernel == "orthonormalise" else COLUMNS) for rank in seconds}
        rows: list[list[Any]] = [
            [rank, *(f"{moved[rank] / seconds[rank][kernel][name] / 1e9:.1f}" for name in names)] for rank in seconds
        ]
        print_table(f"{kernel}, GB/s, {ROWS} x {COLUMNS}, 1 thread", ["columns", *names], rows)
    write_json(arguments.json, "factors", {"rows": ROWS, "columns": COLUMNS, "seconds": seconds})


if __name__ == "__main__":
    main()
