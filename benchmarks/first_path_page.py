"""Write ``docs/results/first-path.md`` from the figures that the benchmarks left in ``docs/results/first-path.json``.

python -m benchmarks.first_path_page
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from benchmarks.measure import markdown_table

RESULTS = Path(__file__).parent.parent / "docs" / "results"


def digits(runs: dict[str, Any]) -> str:
    """The example's accuracy and bytes."""
    rows = [
        [
            name,
            f"{statistics.mean(run['accuracy']):.2f}",
            f"{min(run['accuracy']):.2f}",
            f"{statistics.mean(run['ratio']):.1f}",
            f"{statistics.mean(run['seconds']):.1f}",
        ]
        for name, run in runs.items()
    ]
    return markdown_table(["recipe", "test accuracy, %", "worst seed, %", "message ratio", "seconds a run"], rows)


def step(figures: dict[str, Any]) -> str:
    """The fused pass and its peers."""
    seconds = figures["seconds"]
    rows = [
        [name, f"{1e3 * time:.1f}", f"{1e9 * time / figures['elements']:.2f}", f"{time / seconds['sparse_ring']:.2f}"]
        for name, time in seconds.items()
    ]
    return markdown_table(["implementation", "ms", "ns an element", "times ours"], rows)


def codes(figures: dict[str, Any]) -> str:
    """Encode and decode times by code, for the fastest implementation."""
    densities = list(figures)
    rows = [
        [code, *(f"{figures[density][code]['avx2']:.2f}" for density in densities)] for code in figures[densities[0]]
    ]
    return markdown_table(["code (AVX2)", *(f"ns a kept element at {density}" for density in densities)], rows)


def golomb(figures: dict[str, Any]) -> str:
    """Bits an index against the entropy."""
    rows = [
        [
            f"{row['density']:.2%}",
            f"{row['limit_bits']:.3f}",
            f"{row['golomb_bits']:.3f}",
            f"{row['golomb_excess']:+.2%}",
            f"{row['bitpack_bits']:.3f}",
            f"{row['bitpack_excess']:+.1%}",
        ]
        for row in figures["rows"]
    ]
    return markdown_table(["density", "log2 C(n,k) / k", "golomb", "above", "bitpack", "above"], rows)


def idle(figures: dict[str, Any]) -> str:
    """What a rank's process uses of a core."""
    rows = [[name.replace("_", " "), f"{share:.2%}"] for name, share in figures["cpu_share"].items()]
    return markdown_table([f"over {figures['seconds']:.0f} s", "of a core"], rows)


def main() -> None:
    figures = json.loads((RESULTS / "first-path.json").read_text())
    machine, kernels = figures["machine"], figures["kernels"]
    step_figures = kernels["step"]
    seconds = step_figures["seconds"]
    page = f"""# Results of the first path

Measured on {machine["processor"]}, {machine["cores"]} cores, Python {machine["python"]}, no GPU. Each table names the command that
prints it again; `--json docs/results/first-path.json` keeps its figures, and `python -m benchmarks.first_path_page` writes this
page from them.

## Training: digits on 2 ranks, 5 seeds

`python -m benchmarks.digits`. Fixed split of 1,437 training and 360 test images, 284 thousand parameters, 30 epochs (660 steps).
99.77 % of the elements are in sparsely sent parameters. The message ratio counts headers and dense parameters; GradSA's is that
after its 100 steps of warm-up. All ranks ended with the same parameter hash in every run.

{digits(figures["digits"])}

## One compression step: 16 Mi elements, 1 %, one thread

`python -m benchmarks.kernels`. Momentum, residual, selection by threshold and clearing of what was selected. In torch:
`mul_`, `add_`, `add_`, `abs`, compare, `nonzero`, gather, `index_fill_` twice; or `topk` in place of compare and `nonzero`.
*Stream* reads and writes the same bytes and does little else. The pipeline checks for NaN before it touches its state, which is a
second pass over the gradient (*finite check before*).

{step(step_figures)}

Ours takes {seconds["torch, threshold"] / seconds["sparse_ring"]:.1f} times less than torch with a threshold (aim: 3) and
{seconds["torch, topk"] / seconds["sparse_ring"]:.0f} times less than with top-k (aim: 15); the fused pass alone runs at
{step_figures["stream_share"]:.0%} of the stream's pace.

{codes(kernels["code_nanoseconds"])}

## Bits of an index: n = 16 Mi, uniform

`python -m benchmarks.golomb`. Everything of a message but its values is counted: headers, directory, checksums, padding.
Aim for Golomb: at most +2 %.

{golomb(figures["golomb"])}

## Idle and waiting ranks

`mpiexec -n 2 python -m benchmarks.idle`. *Idle*: no open request (aim: below 1 %). *Waiting*: for an operation that the other
rank has not submitted. *Blocking receive*: MPI's own wait, for comparison.

{idle(figures["idle"])}

## Not measured

Anything on a GPU; more than one host; ranks beyond the cores of this machine as a matter of speed.
"""
    (RESULTS / "first-path.md").write_text(page)


if __name__ == "__main__":
    main()
