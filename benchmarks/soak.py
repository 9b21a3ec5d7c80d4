"""Does memory stay flat? 20,000 steps of random shapes, dtypes and orders on two ranks.

    mpiexec -n 2 python -m benchmarks.soak [--json PATH]

Each step sums four tensors of up to 40 x 40 elements and checks the result. Prints the resident memory of rank 0's process after a
quarter of the steps and at the end; writes ``docs/results/soak.png`` and ``soak.md``. Needs matplotlib.
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

import numpy as np
import torch

import sparse_ring.torch as hvd
from benchmarks.measure import parse_arguments, processor, write_json

STEPS, EVERY = 20_000, 100
RESULTS = Path(__file__).parent.parent / "docs" / "results"


def resident_mib() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20


def train_steps() -> list[float]:
    """Run all steps; return the resident memory every ``EVERY`` steps, in MiB."""
    shapes, order = np.random.default_rng(0), np.random.default_rng(1 + hvd.rank())
    memory = []
    for step in range(STEPS):
        sizes = [tuple(shapes.integers(0, 40, shapes.integers(0, 3))) for _ in range(4)]
        tensors = [torch.full(size, float(step), dtype=torch.float64 if step % 3 else torch.float32) for size in sizes]
        handles = {n: hvd.allreduce_async(tensors[n], name=f"t{n}", op=hvd.Sum) for n in order.permutation(4)}
        for number, handle in handles.items():
            assert torch.equal(hvd.synchronize(handle), tensors[number] * hvd.size())
        if step % EVERY == 0:
            memory.append(resident_mib())
            if hvd.rank() == 0:
                print(f"\rstep {step} of {STEPS}, {memory[-1]:.1f} MiB ", end="", file=sys.stderr, flush=True)
    return memory


def write_page(memory: list[float], seconds: float) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 3.5), layout="constrained")
    axes.plot(np.arange(len(memory)) * EVERY, memory)
    axes.set(xlabel="step", ylabel="resident memory of rank 0, MiB", ylim=(0, max(memory) * 1.15))
    axes.grid(alpha=0.3)
    figure.savefig(RESULTS / "soak.png", dpi=110)
    quarter, end = memory[len(memory) // 4], memory[-1]
    (RESULTS / "soak.md").write_text(f"""# Soak: does memory stay flat?

`mpiexec -n 2 python -m benchmarks.soak`, on {processor()}. {STEPS:,} steps on 2 ranks took {seconds:.0f} s; each sums four
tensors of random shapes and dtypes, submitted in another order on each rank, and checks the result. Resident memory of rank 0:
{quarter:.1f} MiB after a quarter of the steps, {end:.1f} MiB at the end ({end / quarter - 1:+.2%}; aim: below +1 %).

![Resident memory over the steps](soak.png)
""")


def main() -> None:
    arguments = parse_arguments(__doc__)
    hvd.init()
    began = time.perf_counter()
    memory = train_steps()
    if hvd.rank() == 0:
        seconds = time.perf_counter() - began
        print(f"\n{memory[len(memory) // 4]:.1f} MiB after a quarter, {memory[-1]:.1f} MiB at the end, {seconds:.0f} s")
        write_page(memory, seconds)
        write_json(arguments.json, "soak", {"every": EVERY, "mib": memory, "seconds": seconds})
    hvd.shutdown()


if __name__ == "__main__":
    main()
