"""One rank of the transport's contract over MPI: started under mpiexec by test_mpi.py."""

from __future__ import annotations

import sys

from sparse_ring.transport.mpi import MpiTransport

if "mpi4py.MPI" in sys.modules:
    raise SystemExit("importing sparse_ring.transport.mpi has started MPI")

from tests.contracts.transport import CASES


def main() -> None:
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    for piece_bytes in (1 << 30, 1000):
        for case in CASES:
            transport = MpiTransport(piece_bytes=piece_bytes)
            transport.open()
            case(transport)
            transport.close()
    leaves_what_is_unmatched()
    for _ in range(300):
        transport = MpiTransport(world)
        transport.open()
        transport.close()
    passed = world.gather(len(CASES))
    if passed is not None:
        print(f"{len(passed)} ranks passed {sum(passed)} cases")


def leaves_what_is_unmatched() -> None:
    import numpy as np

    transport = MpiTransport()
    transport.open()
    transport.irecv(np.zeros(5, dtype=np.uint8), (transport.rank + 1) % transport.size, 2)
    transport.close()


if __name__ == "__main__":
    main()
