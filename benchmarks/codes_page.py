"""Write ``docs/results/codes.md`` from the figures that the benchmarks left in ``docs/results/codes.json``.

python -m benchmarks.codes_page
"""

from __future__ import annotations

import json
import statistics
from typing import Any

from benchmarks.first_path_page import RESULTS
from benchmarks.measure import markdown_table


def bits(figures: dict[str, Any]) -> str:
    """Bits an index by density."""
    codes = list(figures["choice"][0]["bits"])
    rows = [
        [
            f"{row['density']:.2%}",
            f"{row['limit_bits']:.3f}",
            *(f"{row[f'{code}_bits']:.3f}" for code in codes),
            f"{row['golomb_excess']:+.2%}",
            f"{row['elias_fano_bits'] - row['limit_bits']:+.2f}",
            f"{row['bitpack_bits'] - row['limit_bits']:+.2f}",
        ]
        for row in figures["rows"]
    ]
    above = ["golomb above", "elias_fano, bits above", "bitpack, bits above"]
    return markdown_table(["density", "log2 C(n,k) / k", *codes, *above], rows)


def choice(figures: dict[str, Any]) -> str:
    """Bits an index by shape, and what the automatic choice misses."""
    rows = [
        [row["shape"], *(f"{value:.3f}" for value in row["bits"].values()), f"{row['auto_excess']:+.2%}"]
        for row in figures["choice"]
    ]
    return markdown_table(["support", *figures["choice"][0]["bits"], "auto above the best"], rows)


def errors(figures: dict[str, Any]) -> str:
    """What value codes lose."""
    samples = figures["errors"]
    rows = [[code, *(f"{samples[name][code]:.1e}" for name in samples)] for code in next(iter(samples.values()))]
    return markdown_table(["values", *samples], rows)


def gains(figures: dict[str, Any]) -> str:
    """How many times more evenly spaced levels lose."""
    samples = figures["errors"]
    rows = [
        [
            f"uniform, {bits} bits",
            *(f"{errors[f'uniform {bits} bits'] / errors[f'int{bits}']:.1f}" for errors in samples.values()),
        ]
        for bits in (2, 3, 4, 8)
    ]
    return markdown_table(["times what our levels lose", *samples], rows)


def times(figures: dict[str, Any]) -> str:
    """Nanoseconds a kept element by implementation."""
    densities = list(figures)
    implementations = [name for name in next(iter(figures[densities[0]].values())) if name != "reference"]
    rows = [
        [code, *(f"{figures[density][code][name]:.2f}" for density in densities for name in implementations)]
        for code in figures[densities[0]]
    ]
    return markdown_table(["code", *(f"{name}, {density}" for density in densities for name in implementations)], rows)


def whole(errors: dict[str, Any], speeds: dict[str, Any]) -> str:
    """Codes of whole gradients: errors by distribution, GB/s by implementation."""
    implementations = list(speeds["copy"])
    rows = [
        [
            code,
            *(f"{errors[name][code]:.1e}" for name in errors),
            *(f"{speeds[f'{code} {way}'][name]:.1f}" for way in ("encode", "decode") for name in implementations),
        ]
        for code in next(iter(errors.values()))
    ]
    ways = [f"{way}, {name}" for way in ("encode", "decode") for name in implementations]
    return markdown_table(["code", *errors, *ways], rows)


def training(figures: dict[str, Any]) -> str:
    """Accuracy and bytes of the example by value code."""
    rows = [
        [
            name,
            f"{statistics.mean(run['accuracy']):.2f}",
            f"{min(run['accuracy']):.2f}",
            f"{statistics.mean(run['ratio']):.1f}",
        ]
        for name, run in figures.items()
    ]
    return markdown_table(["values", "test accuracy, %", "worst seed, %", "message ratio"], rows)


def fuzzing(figures: dict[str, Any]) -> str:
    """What became of mutated messages."""
    return (
        f"{figures['repaired']:,} mutated messages with right checksums: {figures['decoded']:,} frames decoded within bounds, "
        f"{figures['refused']:,} frames or messages\nrefused for {figures['reasons']} named reasons, nothing was reported by the "
        f"sanitizers. {figures['unrepaired']:,} with the checksums they had: all refused."
    )


def step(figures: dict[str, Any]) -> str:
    """The fused pass."""
    seconds = figures["seconds"]
    rows = [[name, f"{1e3 * time:.1f}", f"{1e9 * time / figures['elements']:.2f}"] for name, time in seconds.items()]
    return markdown_table(["implementation", "ms", "ns an element"], rows)


def main() -> None:
    figures = json.loads((RESULTS / "codes.json").read_text())
    machine, kernels, golomb, values = (figures[name] for name in ("machine", "kernels", "golomb", "values"))
    where = f"{machine['processor']}, {machine['cores']} cores, Python {machine['python']}"
    copying = max(kernels["whole_gigabytes"]["copy"].values())
    worst = max(row["auto_excess"] for row in golomb["choice"])
    page = f"""# Results of the codes

Measured on {where}, shared with other work. Each table names the command
that prints it again; `--json docs/results/codes.json` keeps its figures, and `python -m benchmarks.codes_page` writes this page.

## Bits of an index

`python -m benchmarks.golomb`. n = 16 Mi; everything of a message but its values is counted. Uniform supports, against the entropy.
Aim: golomb at most +2 % up to 10 %. elias_fano cannot be nearer than 0.47 to 0.56 bits. At 0.01 % the headers of 44 bytes are 0.21
bits an index.

{bits(golomb)}

Other shapes. The automatic choice computes all sizes exactly, so it is never above the best code (aim: +1 %; largest seen
{worst:+.2%}).

{choice(golomb)}

The bitmap is the smallest only above about 57 % of all positions: Golomb with parameter 1 is already a bitmap of gaps.

## What values lose

`python -m benchmarks.values`. Squared error over squared values; error feedback keeps it. *uniform*: evenly spaced levels between
the smallest and the largest magnitude, in as many bits. Most of a truncated tail lies near its threshold, so our levels are denser
there; with few of them the mean excess as unit keeps outliers from moving them all, and 128 are enough to reach the outliers too.

{errors(values)}

{gains(values)}

## Whole gradients

`python -m benchmarks.values`: squared error over squared values of a million, where a code is stochastic its variance (ternary's
scale is 2.5 standard deviations, with what it clips; two2's 1.5). `python -m benchmarks.kernels`: GB/s of float32 that are encoded
(what receivers see is written besides) and decoded on one thread, the fastest of 45 runs; copying them runs at {copying:.1f}.

{whole(values["whole_errors"], kernels["whole_gigabytes"])}

## What that means for training

`python -m benchmarks.digits_codes`. The example of the README, TopK at 1 %, 2 ranks, 3 seeds.

{training(figures["training"])}

## Time

`python -m benchmarks.kernels`. Nanoseconds a kept element on one thread, by density of 16 Mi elements. Aim: golomb encodes in at
most 3 and decodes in at most 2. *auto choose* computes the sizes from which the code is chosen.

{times(kernels["code_nanoseconds"])}

One compression step of 16 Mi elements at 1 %, `auto` being the last table of these. The fused pass runs at
{kernels["step"]["stream_share"]:.0%} of the pace at which the memory streams the same bytes (aim: 80 %).

{step(kernels["step"])}

## Damaged messages

`make fuzz`. Under AddressSanitizer and UndefinedBehaviorSanitizer, every code, every table of kernels in turn.
{fuzzing(figures["fuzz"])}
"""
    (RESULTS / "codes.md").write_text(page)


if __name__ == "__main__":
    main()
