"""Send a known number of bytes over plain TCP from the second rank to the first: ``stream.py BYTES``.

The first prints a line of JSON: the bytes, and the seconds from the first to the last.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time

PIECE_BYTES = 1 << 20
PATIENCE_SECONDS = 30.0


def receive(address: tuple[str, int]) -> None:
    """Take what one sender sends."""
    with socket.create_server(address) as server:
        connection, _ = server.accept()
    piece = bytearray(PIECE_BYTES)
    with connection:
        received = connection.recv_into(piece)
        began = time.perf_counter()
        while count := connection.recv_into(piece):
            received += count
    print(json.dumps({"bytes": received, "seconds": time.perf_counter() - began}))


def send(address: tuple[str, int], count: int) -> None:
    """Send ``count`` bytes as soon as the other side listens."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            connection = socket.create_connection(address, PATIENCE_SECONDS)
            break
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    connection.settimeout(None)
    piece = memoryview(bytes(PIECE_BYTES))
    with connection:
        for start in range(0, count, PIECE_BYTES):
            connection.sendall(piece[: count - start])


def main() -> None:
    """Play the part that RANK gives."""
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if os.environ["RANK"] == "0":
        receive(address)
    else:
        send(address, int(sys.argv[1]))


if __name__ == "__main__":
    main()
