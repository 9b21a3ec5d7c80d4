"""How much of a core does a rank use while it has nothing to do, and while it waits for another rank?

    mpiexec -n 2 python -m benchmarks.idle [--json PATH]
    torchrun --nproc-per-node 2 -m benchmarks.idle [--json PATH]

Prints CPU seconds per second of rank 0's process: ``idle`` (no open request), ``waiting`` (an open
request that rank 1 has not submitted), and under mpiexec for comparison ``blocking_receive`` (MPI's own wait for a
message).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.measure import parse_arguments, print_table, write_json
from sparse_ring.config import Config
from sparse_ring.engine.engine import Engine
from sparse_ring.engine.link import Link
from sparse_ring.engine.operation import Agreed, Operation, Request
from sparse_ring.observe.metrics import Metrics
from sparse_ring.transport.world import open_world, start_world

SECONDS = 10.0


class Nothing(Operation):
    """Agreed on by all ranks, and that is all."""

    nbytes = 0

    def __init__(self, name: str) -> None:
        self.request = Request(name, "barrier")

    @classmethod
    def run(cls, batch: Sequence[Agreed], link: Link) -> list[Any]:
        """Give None for each."""
        return [None] * len(batch)


def cpu_share(work: Callable[[], object]) -> float:
    """Return the CPU seconds per second that this process uses while ``work`` runs."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return (time.process_time() - cpu) / (time.perf_counter() - wall)


def blocking_receive(rank: int) -> float:
    """Return what MPI's own wait for a message uses."""
    from mpi4py import MPI

    world, token = MPI.COMM_WORLD, np.zeros(1, dtype=np.uint8)
    if rank == 1:
        time.sleep(SECONDS)
        world.Send(token, 0)
    return cpu_share(lambda: world.Recv(token, 1)) if rank == 0 else 0.0


def main() -> None:
    arguments = parse_arguments(__doc__)
    kind = start_world()
    transport, free = open_world(None, Config(), kind)
    if transport.size < 2:
        raise SystemExit("start it with: mpiexec -n 2 python -m benchmarks.idle")
    engine = Engine(transport, Config(), Metrics())
    first = engine.rank == 0
    engine.submit(Nothing("start")).wait()
    idle = cpu_share(lambda: time.sleep(SECONDS))
    if not first:
        time.sleep(SECONDS)
    handle = engine.submit(Nothing("late"))
    waiting = cpu_share(handle.wait)
    engine.close()
    free()
    shares = {"idle": idle, "waiting": waiting}
    if kind == "mpi":
        shares["blocking_receive"] = blocking_receive(engine.rank)
    if first:
        rows = [[name, f"{share:.2%}"] for name, share in shares.items()]
        print_table(f"CPU use of a rank's process over {SECONDS:.0f} s ({kind})", ["state", "of a core"], rows)
        write_json(arguments.json, "idle", {"seconds": SECONDS, "cpu_share": shares})


if __name__ == "__main__":
    main()
