"""What every transport must do: each case is run by all ranks of a world at once, on an open transport of its own.

A case is a function of the rank's transport. ``tests/transport`` runs them over threads, and over MPI under mpiexec.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from sparse_ring.transport.base import Bytes, Transfer, Transport

Case = Callable[[Transport], None]

DEADLINE_SECONDS = 60.0
LARGE_BYTES = 300_000


def finish(transfers: Sequence[Transfer]) -> None:
    """Test all transfers until they are done; fails after a minute, so that a broken transport does not hang."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    pending = list(transfers)
    while pending:
        pending = [transfer for transfer in pending if not transfer.test()]
        assert time.monotonic() < deadline, f"{len(pending)} transfers are not done after {DEADLINE_SECONDS} s"
        time.sleep(0.0002)


def pattern(nbytes: int, seed: int) -> Bytes:
    """Return bytes that differ from position to position and from seed to seed."""
    return ((np.arange(nbytes, dtype=np.uint64) * 7 + seed * 31) % 251).astype(np.uint8)


def _others(transport: Transport) -> list[int]:
    return [rank for rank in range(transport.size) if rank != transport.rank]


def every_size_arrives_unchanged(transport: Transport) -> None:
    for nbytes in (0, 1, 999, 1000, 1001, 2000, 65_536, 65_537, LARGE_BYTES):
        buffers = {peer: np.zeros(nbytes, dtype=np.uint8) for peer in _others(transport)}
        receives = {peer: transport.irecv(buffer, peer, 5) for peer, buffer in buffers.items()}
        data = pattern(nbytes, transport.rank)
        sends = [transport.isend(data, peer, 5) for peer in buffers]
        finish([*sends, *receives.values()])
        for peer, buffer in buffers.items():
            assert receives[peer].nbytes == nbytes
            np.testing.assert_array_equal(buffer, pattern(nbytes, peer))
        assert [send.nbytes for send in sends] == [nbytes] * len(sends)


def messages_of_a_tag_keep_their_order(transport: Transport) -> None:
    peers = _others(transport)
    data = [np.full(10 + number, number, dtype=np.uint8) for number in range(50)]
    sends = [transport.isend(item, peer, 3) for item in data for peer in peers]
    buffers = {peer: [np.zeros(10 + number, dtype=np.uint8) for number in range(50)] for peer in peers}
    receives = [transport.irecv(buffer, peer, 3) for peer in peers for buffer in buffers[peer]]
    finish([*reversed(receives), *sends])
    for peer in peers:
        for expected, buffer in zip(data, buffers[peer], strict=True):
            np.testing.assert_array_equal(buffer, expected)


def large_and_small_receives_keep_their_order(transport: Transport) -> None:
    sizes = (LARGE_BYTES, 3, 2000, 2000, 7, LARGE_BYTES, 0, 1)
    peers = _others(transport)
    buffers = {peer: [np.zeros(LARGE_BYTES + 10, dtype=np.uint8) for _ in sizes] for peer in peers}
    receives = {peer: [transport.irecv(buffer, peer, 4) for buffer in buffers[peer]] for peer in peers}
    data = [pattern(nbytes, number) for number, nbytes in enumerate(sizes)]
    sends = [transport.isend(item, peer, 4) for item in data for peer in peers]
    finish([*(receive for peer in peers for receive in reversed(receives[peer])), *sends])
    for peer in peers:
        assert [receive.nbytes for receive in receives[peer]] == list(sizes)
        for expected, buffer in zip(data, buffers[peer], strict=True):
            np.testing.assert_array_equal(buffer[: len(expected)], expected)
            assert not buffer[len(expected) :].any()


def tags_do_not_mix(transport: Transport) -> None:
    peers = _others(transport)
    buffers = {(peer, tag): np.zeros(4, dtype=np.uint8) for peer in peers for tag in (8, 9)}
    sends = [transport.isend(np.full(4, tag, dtype=np.uint8), peer, tag) for tag in (9, 8) for peer in peers]
    receives = [transport.irecv(buffer, peer, tag) for (peer, tag), buffer in buffers.items()]
    finish([*sends, *receives])
    assert {key: buffer.tolist() for key, buffer in buffers.items()} == {key: [key[1]] * 4 for key in buffers}


def a_receive_without_a_message_is_not_done(transport: Transport) -> None:
    after, before = (transport.rank + 1) % transport.size, (transport.rank - 1) % transport.size
    buffer, token = np.zeros(1, dtype=np.uint8), np.zeros(1, dtype=np.uint8)
    receive = transport.irecv(buffer, before, 6)
    assert not receive.test()
    # Everybody has looked before anybody sends.
    for peer in _others(transport):
        finish([transport.isend(token, peer, 7)])
    for peer in _others(transport):
        finish([transport.irecv(token, peer, 7)])
    finish([transport.isend(np.array([42], dtype=np.uint8), after, 6), receive])
    assert buffer.tolist() == [42]
    assert receive.test()
    assert receive.nbytes == 1


def a_message_to_itself_arrives(transport: Transport) -> None:
    buffer = np.zeros(1500, dtype=np.uint8)
    receive = transport.irecv(buffer, transport.rank, 2)
    finish([transport.isend(pattern(1500, 1), transport.rank, 2), receive])
    np.testing.assert_array_equal(buffer, pattern(1500, 1))


def read_only_data_can_be_sent(transport: Transport) -> None:
    data = np.frombuffer(bytes([transport.rank]) * 9, dtype=np.uint8)
    after, before = (transport.rank + 1) % transport.size, (transport.rank - 1) % transport.size
    buffer = np.zeros(9, dtype=np.uint8)
    finish([transport.irecv(buffer, before, 2), transport.isend(data, after, 2)])
    assert buffer.tolist() == [before] * 9


def a_message_larger_than_its_buffer_is_an_error(transport: Transport) -> None:
    after, before = (transport.rank + 1) % transport.size, (transport.rank - 1) % transport.size
    send = transport.isend(pattern(20, 0), after, 2)
    receive = transport.irecv(np.zeros(19, dtype=np.uint8), before, 2)
    for _ in range(2):
        try:
            finish([receive])
        except ValueError as error:
            assert f"Message from rank {before}" in str(error)  # noqa: PT017 - also run without pytest
            assert "buffer" in str(error)  # noqa: PT017
        else:
            raise AssertionError("20 bytes fitted into 19")
    finish([send])


CASES: tuple[Case, ...] = (
    every_size_arrives_unchanged,
    messages_of_a_tag_keep_their_order,
    large_and_small_receives_keep_their_order,
    tags_do_not_mix,
    a_receive_without_a_message_is_not_done,
    a_message_to_itself_arrives,
    read_only_data_can_be_sent,
    a_message_larger_than_its_buffer_is_an_error,
)
