"""One rank of the transport's contract over gloo: ``c10d_ranks.py MODE FOLDER``, started by test_c10d.py."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import torch.distributed as dist

from sparse_ring.errors import MessageError, RankLostError
from sparse_ring.transport.torch_distributed.c10d import C10dTransport
from sparse_ring.transport.torch_distributed.peer import EAGER_BYTES
from tests.contracts.transport import CASES, finish, pattern

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
STORE = dist.FileStore(str(Path(sys.argv[2]) / "store"), SIZE)


def opened(name: str, piece_bytes: int = 1 << 30) -> C10dTransport:
    transport = C10dTransport(dist.PrefixStore(name, STORE), RANK, SIZE, piece_bytes)
    transport.open()
    return transport


def contract() -> None:
    for piece_bytes in (1 << 30, 1000):
        for case in CASES:
            transport = opened(f"{case.__name__}-{piece_bytes}", piece_bytes)
            case(transport)
            transport.close()
    print(f"rank {RANK} passed {len(CASES)} cases", flush=True)


def cycles() -> None:
    """Threads and connections are gone after each close."""
    threads, files = threading.active_count(), 0
    for number in range(30):
        transport = opened(f"cycle-{number}")
        finish([transport.irecv(np.zeros(1, np.uint8), (RANK - 1) % SIZE, 2),
                transport.isend(np.ones(1, np.uint8), (RANK + 1) % SIZE, 2)])  # fmt: skip
        transport.close()
        del transport
        deadline = time.monotonic() + 20
        while threading.active_count() > threads and time.monotonic() < deadline:
            time.sleep(0.01)
        assert threading.active_count() == threads, threading.enumerate()
        if number == 5:
            files = len(os.listdir("/proc/self/fd"))
    assert len(os.listdir("/proc/self/fd")) <= files + 3
    print("cycles: ok", flush=True)


def unfinished() -> None:
    """Closing with receives that nobody answers does not block, and the process ends as usual."""
    transport = opened("unfinished")
    receive = transport.irecv(np.zeros(5, np.uint8), (RANK + 1) % SIZE, 2)
    large = transport.isend(np.zeros(EAGER_BYTES + 1, np.uint8), (RANK + 1) % SIZE, 3)
    began = time.monotonic()
    transport.close()
    assert time.monotonic() - began < 20
    assert not receive.test()
    assert not large.test()
    print("unfinished: ok", flush=True)
    STORE.set(f"tested/{RANK}", "")
    STORE.wait([f"tested/{rank}" for rank in range(SIZE)])


def killed() -> None:
    """Everybody waits for rank 0, which waits for the one that dies; all name that one."""
    transport = opened("killed")
    receive = transport.irecv(np.zeros(5, np.uint8), 1 if RANK == 0 else 0, 2)
    finish([transport.isend(np.zeros(5, np.uint8), peer, 4) for peer in range(SIZE) if peer != RANK])
    finish([transport.irecv(np.zeros(5, np.uint8), peer, 4) for peer in range(SIZE) if peer != RANK])
    if RANK == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    for _ in range(2):
        try:
            finish([receive])
        except RankLostError as error:
            print(f"rank {RANK} lost {error.rank}: {error}", flush=True)
    transport.close()


def aborted() -> None:
    transport = opened("aborted")
    if RANK == 1:
        print("last words", end="")
        transport.abort(7)
    try:
        finish([transport.irecv(np.zeros(5, np.uint8), 0, 2)])
    except RankLostError as error:
        print(f"rank {RANK}: {error}", flush=True)
    transport.close()


def leaves() -> None:
    """A rank that closes in order does not disturb the others; what is posted for it raises."""
    transport = opened("leaves")
    receive = transport.irecv(np.zeros(1, np.uint8), 1 if RANK != 1 else 0, 2)
    if RANK == 1:
        finish([transport.isend(np.zeros(1, np.uint8), 0, 2), receive])
        transport.close()
        return
    others = [peer for peer in range(SIZE) if peer not in (RANK, 1)]
    if RANK == 0:
        finish([receive, transport.isend(np.zeros(1, np.uint8), 1, 2)])
        receive = transport.irecv(np.zeros(1, np.uint8), 1, 2)
    try:
        finish([receive])
    except RankLostError as error:
        print(f"rank {RANK}: {error}", flush=True)
    time.sleep(1)
    finish([transport.isend(pattern(100_000, RANK), peer, 9) for peer in others]
           + [transport.irecv(np.zeros(100_000, np.uint8), peer, 9) for peer in others])  # fmt: skip
    print("leaves: ok", flush=True)


def too_large() -> None:
    """A long message that does not fit is an error; its sender gets done, and the next one arrives."""
    transport = opened("too_large", 30_000)
    after, before = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    sends = [transport.isend(pattern(nbytes, 1), after, 2) for nbytes in (100_000, 50_000)]
    receive = transport.irecv(np.zeros(99_999, np.uint8), before, 2)
    try:
        finish([receive])
    except MessageError as error:
        print(f"rank {RANK}: {error}", flush=True)
    buffer = np.zeros(60_000, np.uint8)
    finish([*sends, transport.irecv(buffer, before, 2)])
    np.testing.assert_array_equal(buffer[:50_000], pattern(50_000, 1))
    transport.close()


def late() -> None:
    """Large messages that come long before their receives, in another order of tags."""
    transport = opened("late")
    peers = [peer for peer in range(SIZE) if peer != RANK]
    sends = [transport.isend(pattern(5_000_000, tag), peer, tag) for tag in (5, 6) for peer in peers]
    small = [transport.isend(pattern(100, number), peer, 7) for number in range(200) for peer in peers]
    finish(small)
    time.sleep(0.3)
    for tag in (6, 5):
        buffers = {peer: np.zeros(6_000_000, np.uint8) for peer in peers}
        finish([transport.irecv(buffer, peer, tag) for peer, buffer in buffers.items()])
        for buffer in buffers.values():
            np.testing.assert_array_equal(buffer[:5_000_000], pattern(5_000_000, tag))
    for number in range(200):
        for peer in peers:
            buffer = np.zeros(100, np.uint8)
            finish([transport.irecv(buffer, peer, 7)])
            np.testing.assert_array_equal(buffer, pattern(100, number))
    finish(sends)
    transport.close()
    print("late: ok", flush=True)


def frozen() -> None:
    """Large data that may not be written to is sent without a copy and without a warning."""
    transport = opened("frozen")
    after, before = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    buffer = np.zeros(200_000, np.uint8)
    data = np.frombuffer(pattern(200_000, 3).tobytes(), dtype=np.uint8)
    finish([transport.irecv(buffer, before, 2), transport.isend(data, after, 2)])
    np.testing.assert_array_equal(buffer, data)
    transport.close()
    print("frozen: ok", flush=True)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
