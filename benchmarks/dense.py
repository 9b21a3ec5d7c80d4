"""Is a dense allreduce as fast as torch's over gloo, from 1 KB to 256 MB?

    mpiexec -n 2 python -m benchmarks.dense [--json PATH] [--plot PATH]
    python -m benchmarks.dense --lab 100mbit --hosts 2 4 [--json PATH] [--plot PATH]

Both sum the same tensor in the same processes: `allreduce_` by name, and `torch.distributed.all_reduce` in a gloo group. A
pair is a few calls of each, the second pair in the other order, so that a drift of the machine meets both alike; the slowest
rank's time counts. The figure is the median of the pairs' ratios, gloo / ours: above 1, ours is faster. With --lab the ranks
are hosts of benchmarks/netlab (needs root), whose links have that rate.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import lower_bound, print_table, write_json

SMALLEST_BYTES, LARGEST_BYTES = 1 << 10, 256 << 20
# Calls a sample: of small tensors enough to pass the clock's and the scheduler's grain.
MOST_CALLS = 50
BYTES_A_SAMPLE = 4 << 20
TIMEOUT_SECONDS = 3600


def sizes(smallest: int, largest: int) -> list[int]:
    """Return the powers of 4, times 1 KiB, from ``smallest`` to ``largest`` bytes, both included."""
    return [size for size in (SMALLEST_BYTES << (2 * power) for power in range(10)) if smallest <= size <= largest]


def pairs_of(ours: Callable[[], object], theirs: Callable[[], object], pairs: int, calls: int) -> list[list[float]]:
    """Return each candidate's seconds a call, pair by pair; the slowest rank's."""
    import torch
    import torch.distributed as dist

    seconds: list[list[float]] = [[], []]
    for number in range(pairs + 1):
        for which in (0, 1) if number % 2 else (1, 0):
            call = theirs if which else ours
            call()
            dist.barrier()
            start = time.perf_counter()
            for _ in range(calls):
                call()
            if number:
                seconds[which].append((time.perf_counter() - start) / calls)
    table = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(table, dist.ReduceOp.MAX)
    return [[float(value) for value in row] for row in table]


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure all sizes; called by every rank."""
    import torch
    import torch.distributed as dist

    import sparse_ring.torch as hvd

    rows: dict[str, Any] = {}
    for nbytes in sizes(arguments.smallest, arguments.largest):
        # Sums of zeros stay zeros, however often.
        tensor = torch.zeros(nbytes // 4)
        calls = max(1, min(MOST_CALLS, BYTES_A_SAMPLE // nbytes))

        def ours(tensor: torch.Tensor = tensor) -> object:
            return hvd.allreduce_(tensor, op=hvd.Sum, name="x")

        def theirs(tensor: torch.Tensor = tensor) -> object:
            return dist.all_reduce(tensor)

        load = os.getloadavg()[0]
        mine, gloo = pairs_of(ours, theirs, arguments.pairs, calls)
        rows[str(nbytes)] = {"ours": mine, "gloo": gloo, "calls": calls, "load": load}
    return rows


def run_rank(arguments: argparse.Namespace) -> dict[str, Any] | None:
    """Take part as one rank; returns the figures on rank 0."""
    import socket

    import torch.distributed as dist

    import sparse_ring.torch as hvd

    hvd.init()
    address = hvd.broadcast_object(os.environ.get("LAB_ADDRESS", "127.0.0.1"))
    port = 0
    if hvd.rank() == 0:
        with socket.socket() as free:
            free.bind((address, 0))
            port = free.getsockname()[1]
    port = hvd.broadcast_object(port)
    dist.init_process_group("gloo", f"tcp://{address}:{port}", rank=hvd.rank(), world_size=hvd.size())
    rows = measure(arguments)
    first, size = hvd.rank() == 0, hvd.size()
    hvd.barrier()
    hvd.shutdown()
    dist.destroy_process_group()
    return {"ranks": size, "rows": rows} if first else None


def run_lab(arguments: argparse.Namespace, hosts: int) -> dict[str, Any]:
    """Run the ranks on hosts of the lab and return rank 0's figures."""
    from benchmarks.netlab.lab import Lab

    with Lab(hosts, arguments.lab) as lab, tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.json"
        command = [sys.executable, "-m", "benchmarks.dense", "--rows", str(path), "--pairs", str(arguments.pairs)]
        command += ["--smallest", str(arguments.smallest), "--largest", str(arguments.largest)]
        environment = {
            "LAB_ADDRESS": lab.addresses[0],
            "GLOO_SOCKET_IFNAME": lab.interface,
            "SPARSE_RING_PROGRESS": "0",
            "PYTHONPATH": str(Path.cwd()),
        }
        result = lab.run(command, starter="mpi", environment=environment, timeout=TIMEOUT_SECONDS)
        if result.returncode:
            raise SystemExit(f"{hosts} hosts: exit code {result.returncode}\n{result.stderr[-3000:]}")
        found: dict[str, Any] = json.loads(path.read_text())
        return found


def table(rows: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of one configuration's table."""
    header = ["bytes", "ours us", "gloo us", "gloo / ours", "95 % bound", "load"]
    lines = []
    for nbytes, row in rows.items():
        quotients = [gloo / ours for ours, gloo in zip(row["ours"], row["gloo"], strict=True)]
        times = [f"{1e6 * median(row[name]):.0f}" for name in ("ours", "gloo")]
        bounds = [f"{median(quotients):.2f}", f"> {lower_bound(quotients):.2f}"]
        lines.append([f"{int(nbytes):,}", *times, *bounds, f"{row['load']:.1f}"])
    return header, lines


def plot(results: Mapping[str, Any], path: Path) -> None:
    """Draw the ratio over the size, one line a configuration; above 1, ours is faster."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(8, 4.5))
    for title, entry in results.items():
        nbytes = [int(size) for size in entry["rows"]]
        quotients = [[g / o for o, g in zip(r["ours"], r["gloo"], strict=True)] for r in entry["rows"].values()]
        (line,) = axis.plot(nbytes, [median(values) for values in quotients], marker="o", label=title)
        axis.fill_between(
            nbytes, [lower_bound(values) for values in quotients], [-lower_bound([-v for v in values]) for values in quotients],
            color=line.get_color(), alpha=0.15,
        )  # fmt: skip
    axis.axhline(1, color="black", linewidth=0.8)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log", base=2)
    axis.set_xlabel("bytes of the tensor")
    axis.set_ylabel("gloo's time / ours (band: 95 % bounds)")
    axis.legend()
    axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lab", metavar="RATE", help="measure on links of this rate: 100mbit, 1gbit, unshaped, …")
    parser.add_argument("--hosts", type=int, nargs="+", default=[2, 4], help="hosts of the lab (2 4)")
    parser.add_argument("--pairs", type=int, default=12, help="pairs of each size (12)")
    parser.add_argument("--smallest", type=int, default=SMALLEST_BYTES, help="bytes of the smallest tensor")
    parser.add_argument("--largest", type=int, default=LARGEST_BYTES, help="bytes of the largest tensor")
    parser.add_argument("--json", type=Path, help="keep the figures here, beside those of other runs")
    parser.add_argument("--plot", type=Path, help="draw all that the JSON file then holds, or this run")
    parser.add_argument("--rows", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    found: dict[str, Any] = {}
    if arguments.lab:
        for hosts in arguments.hosts:
            found[f"{hosts} hosts, {arguments.lab}"] = run_lab(arguments, hosts)
    else:
        entry = run_rank(arguments)
        if entry is None:
            return
        if arguments.rows:
            arguments.rows.write_text(json.dumps(entry))
            return
        found[f"{entry['ranks']} ranks, shared memory"] = entry
    known = json.loads(arguments.json.read_text()) if arguments.json and arguments.json.exists() else {}
    results = {**known.get("dense", {}), **found}
    write_json(arguments.json, "dense", results)
    for title, entry in found.items():
        print_table(title, *table(entry["rows"]))
    if arguments.plot:
        plot(results, arguments.plot)


if __name__ == "__main__":
    main()
