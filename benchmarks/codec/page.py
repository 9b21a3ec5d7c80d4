"""Write ``docs/results/codec.md`` from the figures that the benchmark left in ``docs/results/codec.json``.

python -m benchmarks.codec.page
"""

from __future__ import annotations

import json

from benchmarks.codec.figures import (
    bit_rows,
    compressor_rows,
    parameter_rows,
    pass_rows,
    peer_rows,
    selector_rows,
    structure_rows,
    time_rows,
    verdicts,
)
from benchmarks.first_path_page import RESULTS
from benchmarks.measure import markdown_table


def main() -> None:
    record = json.loads((RESULTS / "codec.json").read_text())
    machine, figures = record["machine"], record["codec"]
    lines = "\n".join(f"* {line}" for line in verdicts(figures))
    skipped = "".join(f" {line}" for line in figures["compressors"]["skipped"])
    page = f"""# What compressing costs, and how few bits it takes

`python -m benchmarks.codec --json docs/results/codec.json` prints all of it again in a few minutes;
`python -m benchmarks.codec.page` writes this page. On {machine["processor"]}, {machine["cores"]} cores, Python {machine["python"]},
one thread, kernels `{figures["kernels"]}`. What is compared runs in the same rounds, forwards and backwards; *at least* is what the
median of the rounds' ratios exceeds with 95 % confidence (sign test).

{lines}

## The passes against the memory

16 Mi elements. *Stream*: NumPy or torch, whichever is faster, reads and writes the same bytes and does little else: 20 an element
with velocity (gradient, velocity, residual read; velocity, residual written), 12 without.

{markdown_table(*pass_rows(figures))}

The whole selector over 100 steps of a real residual, the first of which knows nothing: the 4096 × 4096 matrix of a network that
learns the digits with GradSA's momentum. A *miss* looks for the border among all elements, in two more passes. *Of the stream*
compares the sums of all steps, misses included; the next column does so for the processor time of the thread, which other work
on the machine disturbs less. Misses come at the start, while the border moves by a half or more a step.

{markdown_table(*selector_rows(figures))}

## Nanoseconds a kept element

{markdown_table(*time_rows(figures))}

## Bits of an index

Payloads only; a frame's header adds 24 bytes. *Limit* is log2 C(n, k) / k, the entropy if all supports were equally likely, of each
frame by itself. Real supports are those that one of two ranks sends in four steps after the warm-up while the examples train with
GradSA (`benchmarks/codec/supports.npz`; `python -m benchmarks.codec --capture` makes it again).

{markdown_table(*bit_rows(figures))}

Real supports are not spread evenly: they crowd in the rows of live units and used bytes. The interpolative code follows that by
itself, having no parameters; where supports are spread evenly it takes 2 to 5 % more than the limit, and `auto` takes golomb.
What is left: a code that told how many indices each row, or each column, has, and then which, would take (not rounded to bits)

{markdown_table(*structure_rows(figures))}

By parameter:

{markdown_table(*parameter_rows(figures))}

## A whole step beside others

16 Mi elements, 1 %, fresh normal gradients, each with its own residual. Ours: finite check, accumulation, ExactTopK, Golomb and
float16, residual. torch: `mul_`, `add_`, `abs`, `topk`, gather, `index_fill_`, raw float32 and int32 in one buffer; NumPy likewise
with `argpartition`.

{markdown_table(*peer_rows(figures))}

The largest 1 % of normal values, sorted by position; general compressors work on the raw pairs.{skipped}

{markdown_table(*compressor_rows(figures))}
"""
    (RESULTS / "codec.md").write_text(page)


if __name__ == "__main__":
    main()
