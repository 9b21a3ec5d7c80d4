"""How long does a message take there and back, over a transport and over the library below it?

    mpiexec -n 2 python -m benchmarks.round_trip [--json PATH]
    torchrun --nproc-per-node 2 -m benchmarks.round_trip [--json PATH]

Under mpiexec: MPI; under torchrun: gloo. ``transport`` waits as the engine does (``Link.wait``), ``library`` is the library's own
blocking send and receive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.measure import interleaved, parse_arguments, print_table, write_json
from sparse_ring.config import Config
from sparse_ring.engine.link import Link
from sparse_ring.observe.metrics import Metrics
from sparse_ring.transport.base import Bytes, Transfer, Transport
from sparse_ring.transport.world import open_world, start_world

SIZES = {"1 KB": 1 << 10, "16 KB": 16 << 10, "64 KB": 64 << 10, "1 MB": 1 << 20, "16 MB": 16 << 20}
TRIPS = 20
REPEATS = 15
TAG = 5


def library(kind: str) -> tuple[Callable[[Bytes, int], Any], Callable[[Bytes, int], Any]]:
    """Return the library's blocking send and receive."""
    if kind == "mpi":
        from mpi4py import MPI

        world = MPI.COMM_WORLD
        return lambda data, peer: world.Send(data, peer, TAG), lambda data, peer: world.Recv(data, peer, TAG)
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    return (
        lambda data, peer: dist.send(torch.from_numpy(data), peer, tag=TAG),
        lambda data, peer: dist.recv(torch.from_numpy(data), peer, tag=TAG),
    )


def trips(transport: Transport, nbytes: int, wait: Callable[[list[Transfer]], None]) -> Callable[[], None]:
    """Return what sends a message there and back some times; the receive is posted first."""
    data, buffer, peer = np.zeros(nbytes, np.uint8), np.zeros(nbytes, np.uint8), 1 - transport.rank

    def run() -> None:
        for _ in range(TRIPS):
            receive = transport.irecv(buffer, peer, TAG)
            if transport.rank == 0:
                wait([transport.isend(data, peer, TAG), receive])
            else:
                wait([receive])
                wait([transport.isend(data, peer, TAG)])

    return run


def main() -> None:
    arguments = parse_arguments(__doc__)
    kind = start_world()
    transport, free = open_world(None, Config(), kind)
    if transport.size != 2:
        raise SystemExit("start it on two ranks: mpiexec -n 2, or torchrun --nproc-per-node 2")
    transport.open()
    link = Link(transport, Config(), Metrics())
    send, receive = library(kind)
    figures: dict[str, dict[str, float]] = {}
    for name, nbytes in SIZES.items():
        data, peer = np.zeros(nbytes, np.uint8), 1 - transport.rank

        def plain(data: Bytes = data, peer: int = peer) -> None:
            for _ in range(TRIPS):
                for call in (send, receive) if peer == 1 else (receive, send):
                    call(data, peer)

        candidates = {
            "transport": trips(transport, nbytes, lambda transfers: link.wait(transfers, "trip")),
            "library": plain,
        }
        figures[name] = {key: value / TRIPS for key, value in interleaved(candidates, REPEATS).items()}
    if transport.rank == 0:
        rows = [[name, *(f"{value * 1e6:.0f}" for value in times.values())] for name, times in figures.items()]
        print_table(f"Microseconds there and back over {kind}", ["message", "transport", "library"], rows)
        write_json(arguments.json, "round_trip", {"kind": kind, "seconds": figures})
    transport.close()
    free()


if __name__ == "__main__":
    main()
