"""How much of the kept values each value code loses, for the bits it takes.

    python -m benchmarks.values [--json PATH]

The largest 1 % of 16 Mi elements of three distributions, and as parameters that stay dense all of 64 Ki. The figure is the squared
error over the squared values: what error feedback has to keep. Peers in the same run: the sign with one mean magnitude, and as
many uniform levels from the smallest to the largest magnitude as the levels' code has.

The codes of whole gradients get 1 Mi elements: ternary with a scale of 2.5 standard deviations, two2 of 1.5. The figure of the
stochastic ones is their variance, and of ternary also what it clips.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.measure import parse_arguments, print_table, write_json
from sparse_ring.encode import VALUE_NAMES, WHOLE_NAMES, Coding, Levels, ValueCode
from sparse_ring.kernels.base import Floats
from sparse_ring.kernels.table import kernels_for

ELEMENTS, DENSE_ELEMENTS, WHOLE_ELEMENTS = 1 << 24, 1 << 16, 1 << 20
DENSITY = 0.01
DEVIATIONS = {"ternary": 2.5, "two2": 1.5}


def samples() -> dict[str, Floats]:
    """Kept values by where they come from."""
    rng = np.random.default_rng(0)
    found: dict[str, Floats] = {}
    for name, draw in (("normal", rng.standard_normal), ("Laplace", lambda n: rng.laplace(size=n))):
        found[f"{name}, largest {DENSITY:.0%}"] = largest(draw(ELEMENTS))
    found[f"Student t (3), largest {DENSITY:.0%}"] = largest(rng.standard_t(3, ELEMENTS))
    found["normal, all"] = rng.standard_normal(DENSE_ELEMENTS).astype(np.float32)
    return found


def whole_samples() -> dict[str, Floats]:
    """Whole gradients by their distribution."""
    rng = np.random.default_rng(1)
    drawn = {
        "normal": rng.standard_normal(WHOLE_ELEMENTS),
        "Laplace": rng.laplace(size=WHOLE_ELEMENTS),
        "Student t (3)": rng.standard_t(3, WHOLE_ELEMENTS),
    }
    return {name: values.astype(np.float32) for name, values in drawn.items()}


def whole_errors(values: Floats) -> dict[str, float]:
    """The errors of the codes of whole gradients; ternary's with what clipping cuts off."""
    deviation = float(values.std())
    return {
        name: code_error(values, code.given(Coding(scale=DEVIATIONS.get(name, 0.0) * deviation)))
        for name, code in WHOLE_NAMES.items()
    }


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
        errors = {code.name: code_error(values, code) for code in VALUE_NAMES.values()}
        for code in VALUE_NAMES.values():
            if isinstance(code, Levels):
                errors[f"uniform {code.bits} bits"] = uniform_error(values, code.bits)
        figures[name] = errors
    names = list(figures)
    print_table(
        "squared error / squared values",
        ["code", *names],
        [[code, *(f"{figures[name][code]:.1e}" for name in names)] for code in figures[names[0]]],
    )
    whole = {name: whole_errors(values) for name, values in whole_samples().items()}
    print_table(
        f"whole gradients of {WHOLE_ELEMENTS} elements: squared error / squared values",
        ["code", "bits", *whole],
        [
            [
                name,
                f"{8 * code.size(WHOLE_ELEMENTS) / WHOLE_ELEMENTS:.3f}",
                *(f"{whole[kind][name]:.1e}" for kind in whole),
            ]
            for name, code in WHOLE_NAMES.items()
        ],
    )
    write_json(arguments.json, "values", {"density": DENSITY, "errors": figures, "whole_errors": whole})


if __name__ == "__main__":
    main()
