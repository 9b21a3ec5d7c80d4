"""One rank of an engine over MPI: started under mpiexec by test_mpi.py."""

from __future__ import annotations

import random

from mpi4py import MPI

from sparse_ring.config import Config
from sparse_ring.engine.engine import Engine
from sparse_ring.observe.metrics import Metrics
from sparse_ring.transport.mpi import MpiTransport
from tests.engine.ranks import Gather

NAMES = [f"{number}.{'block.' * 10}weight" for number in range(1500)]


def main() -> None:
    world = MPI.COMM_WORLD
    expected = list(range(1, world.size + 1))
    for session in range(20):
        engine = Engine(MpiTransport(), Config(), Metrics())
        order = random.Random(engine.rank).sample(NAMES, len(NAMES) if session == 0 else 20 * (session % 2))
        if session:
            order = random.Random(engine.rank).sample(sorted(NAMES[:20]), len(order))
        for _ in range(2):
            handles = {name: engine.submit(Gather(name, engine.rank + 1, key="k")) for name in order}
            results = {name: handles[name].wait() for name in sorted(handles)}
            assert all(values == expected for values, _, _ in results.values())
            batches = [batch for _, batch, _ in results.values()]
            assert world.allgather(batches) == [batches] * world.size
        engine.close()
    ranks = world.gather(world.rank)
    if ranks is not None:
        print(f"ranks {ranks} agree")


if __name__ == "__main__":
    main()
