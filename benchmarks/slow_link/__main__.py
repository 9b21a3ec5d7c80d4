"""Does it help on a slow link, beside what people use today?

    python -m benchmarks.slow_link [--hosts 2 4] [--rates 100mbit 1gbit 10gbit unshaped] [--json PATH] [--plot PATH]

Makes hosts and links (benchmarks/netlab; needs root) and trains the same network on the same images by each arm in turn, in
one job: compute only, sparse_ring's recipes, torch's DistributedDataParallel with and without hooks, PowerSGD, post-local
SGD. With --json, configurations that the file has are not measured again, so a run that was interrupted goes on.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.measure import print_table, write_json
from benchmarks.netlab.lab import Lab
from benchmarks.slow_link.figures import plot, rows, verdicts
from benchmarks.slow_link.kinds import ARMS, COMPUTE_ONLY

RATES = ["100mbit", "1gbit", "10gbit", "unshaped"]
# What limits when no link does.
NAMED = {"unshaped": "CPU-limited"}
TIMEOUT_SECONDS = 3600


def measured(hosts: int, rate: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure one configuration; ends the program with the job's output where it fails."""
    with Lab(hosts, rate) as lab, tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        command = [
            sys.executable,
            "-m",
            "benchmarks.slow_link.worker",
            "--interface",
            lab.interface,
            "--json",
            str(path),
        ]
        command += ["--rounds", str(arguments.rounds), "--batch", str(arguments.batch), "--steps", str(arguments.steps)]
        command += ["--arms", *arguments.arms]
        environment = {
            "LAB_ADDRESS": lab.addresses[0],
            "GLOO_SOCKET_IFNAME": lab.interface,
            "SPARSE_RING_PROGRESS": "0",
            "PYTHONPATH": str(Path.cwd()),
        }
        result = lab.run(
            command, starter=arguments.starter, environment=environment, timeout=TIMEOUT_SECONDS, show=True
        )
        if result.returncode:
            raise SystemExit(f"{hosts} hosts at {rate}: exit code {result.returncode}\n{result.stderr[-3000:]}")
        return {"batch": arguments.batch, "arms": json.loads(path.read_text())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rates", nargs="+", default=RATES)
    parser.add_argument("--arms", nargs="+", default=ARMS, help="compute only is always there")
    parser.add_argument("--rounds", type=int, default=10, help="pairs of each arm with each other one")
    parser.add_argument("--steps", type=int, default=4, help="steps an arm and round")
    parser.add_argument("--batch", type=int, default=32, help="images a rank and step: sets the compute time")
    parser.add_argument(
        "--starter", choices=["mpi", "torch"], default="mpi", help="what sparse_ring's bytes travel over: MPI or gloo"
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    if COMPUTE_ONLY not in arguments.arms:
        arguments.arms = [COMPUTE_ONLY, *arguments.arms]
    known = json.loads(arguments.json.read_text()) if arguments.json and arguments.json.exists() else {}
    results: dict[str, Any] = known.get("slow_link", {})
    for rate in arguments.rates:
        for hosts in arguments.hosts:
            over = "MPI" if arguments.starter == "mpi" else "gloo"
            title = f"{hosts} hosts, {NAMED.get(rate, rate)}, batch {arguments.batch}, over {over}"
            if title not in results:
                print(f"== {title}", flush=True)
                results[title] = measured(hosts, rate, arguments)
                write_json(arguments.json, "slow_link", results)
            print_table(title, *rows(results[title]["arms"]))
            for line in verdicts(results[title]["arms"]):
                print(f"   {line}")
    if importlib.util.find_spec("horovod") is None:
        print("\nHorovod is not installed here, so it is no arm.")
    if arguments.plot:
        plot(results, arguments.plot)


if __name__ == "__main__":
    main()
