"""How much of the kept values each value code loses, for the bits it takes.

    python -m benchmarks.values [--json PATH]

The largest 1 % of 16 Mi elements of three distributions, and as parameters that stay dense all of 64 Ki. The figure is the squared
error over the squared values: what error feedback has to keep. Peers in the same run: the sign with one mean magnitude, and as
many uniform levels from the smallest to the largest magnitude as the levels' code has.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.measure import parse_arguments, print_table, write_json
from sparse_ring.encode import VALUE_CODES, Levels, ValueCode
from sparse_ring.kernels.base import Floats
from sparse_ring.kernels.table import kernels_for

ELEMENTS, DENSE_ELEMENTS = 1 << 24, 1 << 16
DENSITY = 0.01


def samples() -> dict[str, Floats]:
    """Kept values by where they come from."""
    rng = np.random.default_rng(0)
    found: dict[str, Floats] = {}
    for name, draw in (("normal", rng.standard_normal), ("Laplace", lambda n: rng.laplace(size=n))):
        found[f"{name}, largest {DENSITY:.0%}"] = largest(draw(ELEMENTS))
    found[f"Student t (3), largest {DENSITY:.0%}"] = largest(rng.standard_t(3, ELEMENTS))
    found["normal, all"] = rng.standard_normal(DENSE_ELEMENTS).astype(np.float32)
    return found


def largest(values: np.ndarray) -> Floats:
    """The largest magnitudes, in their order."""
    k = int(DENSITY * len(values))
    threshold = np.partition(np.abs(values), len(values) - k)[len(values) - k]
    kept: Floats = values[np.abs(values) >= threshold].astype(np.float32)
    return kept


def relative_error(values: Floats, decoded: np.ndarray) -> float:
    """Squared error over squared values."""
    exact = values.astype(np.float64)
    return float(np.square(exact - decoded).sum() / np.square(exact).sum())


def code_error(values: Floats, code: ValueCode) -> float:
    """The error of a code."""
    decoded = np.empty_like(values)
    code.encode(values, np.empty(code.size(len(values)), dtype=np.uint8), decoded, kernels_for())
    return relative_error(values, decoded)


def uniform_error(values: Floats, bits: int) -> float:
    """The error of evenly spaced levels from the smallest to the largest magnitude."""
    magnitudes = np.abs(values).astype(np.float64)
    low, high = magnitudes.min(), magnitudes.max()
    step = (high - low) / (2 ** (bits - 1) - 1)
    return relative_error(values, np.sign(values) * (low + np.rint((magnitudes - low) / step) * step))


def main() -> None:
    arguments = parse_arguments(__doc__)
    figures: dict[str, dict[str, Any]] = {}
    for name, values in samples().items():
        errors = {code.name: code_error(values, code) for code in VALUE_CODES.values()}
        for code in VALUE_CODES.values():
            if isinstance(code, Levels):
                errors[f"uniform {code.bits} bits"] = uniform_error(values, code.bits)
        figures[name] = errors
    names = list(figures)
    print_table(
        "squared error / squared values",
        ["code", *names],
        [[code, *(f"{figures[name][code]:.1e}" for name in names)] for code in figures[names[0]]],
    )
    write_json(arguments.json, "values", {"density": DENSITY, "errors": figures})


if __name__ == "__main__":
    main()
