"""Messages straight to their ranks, without a hop in between.

As many bytes leave each rank as in a ring that forwards, where a message takes ``size - 1`` hops: here it takes one. On hosts
whose cores are busy with training each hop costs the time until its rank is scheduled, which is often more than the bytes take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from sparse_ring.engine.link import Link
from sparse_ring.exchange.base import Gather
from sparse_ring.exchange.scratch import Scratch

Bytes = NDArray[np.uint8]
Arrived = Callable[[int, Bytes], None]

ALIGNMENT = 64


class MessageMesh(Gather):
    """Exchanges of opaque messages. Keeps its receive buffers; held by one engine, not for several threads."""

    def __init__(self) -> None:
        self._arena = Scratch()

    def allgather(self, message: Bytes, most_bytes: Sequence[int], link: Link, what: str, arrived: Arrived) -> None:
        """Send ``message`` (``uint8[any]``) to all ranks; see :class:`~sparse_ring.exchange.base.Gather`.

        The bytes given to ``arrived`` are valid until the next call. Where ``arrived`` raises, the messages still travel to the
        end, so that no rank waits for this one, and the error is raised then.
        """
        self._exchange([message] * link.size, most_bytes, link, what, arrived)

    def alltoall(
        self, messages: Sequence[Bytes], most_bytes: Sequence[int], link: Link, what: str, arrived: Arrived
    ) -> None:
        """Send ``messages[rank]`` to each rank; otherwise as ``allgather``: what arrives is every rank's message to this one.

        ``most_bytes[rank]`` is what the message *from* each rank has at most.
        """
        self._exchange(messages, most_bytes, link, what, arrived)

    def broadcast(
        self, message: Bytes | None, root: int, most_bytes: int, link: Link, what: str, arrived: Arrived
    ) -> None:
        """Send the root's ``message`` to all ranks (None on the others); ``arrived(root, message)`` is called once on each."""
        if link.rank == root:
            assert message is not None
            others = [(root + step) % link.size for step in range(1, link.size)]
            sends = [link.send(message, destination) for destination in others]
            try:
                arrived(root, message)
            finally:
                link.wait(sends, what, others)
            return
        buffer = self._buffers({root: most_bytes})[root]
        receive = link.recv(buffer, root)
        link.wait([receive], what, (root,))
        arrived(root, buffer[: receive.nbytes])

    def _exchange(
        self, messages: Sequence[Bytes], most_bytes: Sequence[int], link: Link, what: str, arrived: Arrived
    ) -> None:
        rank, size = link.rank, link.size
        if len(messages[rank]) > most_bytes[rank]:
            raise ValueError(f"{what}: {len(messages[rank])} bytes, but at most {most_bytes[rank]} were agreed.")
        left = [(rank - step) % size for step in range(1, size)]
        right = [(rank + step) % size for step in range(1, size)]
        buffers = self._buffers({source: most_bytes[source] for source in left})
        receives = {source: link.recv(buffers[source], source) for source in left}
        sends = [link.send(messages[destination], destination) for destination in right]
        failure: Exception | None = None
        for source in (rank, *left):
            if source != rank:
                link.wait([receives[source]], what, (source,))
            if failure is None:
                try:
                    arrived(source, messages[rank] if source == rank else buffers[source][: receives[source].nbytes])
                except Exception as error:
                    failure = error
        link.wait(sends, what, right)
        if failure is not None:
            raise failure

    def _buffers(self, most_bytes: dict[int, int]) -> dict[int, Bytes]:
        # Each message starts aligned. What a message does not fill of its place is address space only.
        room = {source: -(-most // ALIGNMENT) * ALIGNMENT for source, most in most_bytes.items()}
        arena = self._arena.take(sum(room.values()))
        buffers, start = {}, 0
        for source, most in most_bytes.items():
            buffers[source] = arena[start : start + most]
            start += room[source]
        return buffers
