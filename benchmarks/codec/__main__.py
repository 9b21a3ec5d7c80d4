"""What compressing costs and how few bits it takes, beside the memory's own pace, the entropy and other tools.

    python -m benchmarks.codec [--json docs/results/codec.json]
    python -m benchmarks.codec --capture

On one thread. The passes over all elements against a stream over the same bytes; nanoseconds a kept element of each code; bits
an index against log2 C(n, k) / k, on uniform supports and on those in ``benchmarks/codec/supports.npz``, which --capture
takes anew from training the two examples; a whole step beside torch.topk, numpy.argpartition, zlib and zstandard.
``python -m benchmarks.codec.page`` writes the page.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.codec import bits, passes, peers, supports, times
from benchmarks.codec.figures import bit_rows, compressor_rows, pass_rows, peer_rows, selector_rows, time_rows, verdicts
from benchmarks.measure import print_table, write_json
from sparse_ring.kernels.table import kernels_for


def progress(text: str) -> None:
    """One line that is written over."""
    print(f"\r\x1b[K{time.strftime('%H:%M:%S')} {text} …", end="", file=sys.stderr, flush=True)


def measure() -> dict[str, Any]:
    """Everything."""
    figures: dict[str, Any] = {"kernels": kernels_for().name, "fused": []}
    for density in passes.DENSITIES:
        progress(f"fused pass at {density:.1%}")
        figures["fused"].append(passes.fused_pass(density))
    figures["selector"] = [passes.selector_steps(density, progress) for density in passes.DENSITIES]
    progress("codes")
    figures["nanoseconds"] = times.measure()
    progress("bits")
    figures["uniform"], figures["real"] = bits.uniform(), bits.real()
    figures["end_to_end"] = peers.end_to_end(progress)
    progress("compressors")
    figures["compressors"] = peers.compressors()
    print(file=sys.stderr)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file")
    parser.add_argument(
        "--capture", action="store_true", help="train the examples and write the supports; nothing else"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.capture:
        supports.capture()
        return
    began = time.perf_counter()
    figures = measure()
    for title, rows in (
        ("fused pass", pass_rows),
        ("selector on a real residual", selector_rows),
        ("ns a kept element", time_rows),
        ("bits an index", bit_rows),
        ("a whole step", peer_rows),
        ("bytes of the same elements", compressor_rows),
    ):
        print_table(title, *rows(figures))
    for line in [*figures["compressors"]["skipped"], *verdicts(figures)]:
        print(line)
    print(f"{time.perf_counter() - began:.0f} s")
    write_json(arguments.json, "codec", figures)


if __name__ == "__main__":
    main()
