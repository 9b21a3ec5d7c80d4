"""Every rank's message straight to every other rank.

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

ALIGNMENT = 64


class MessageMesh(Gather):
    """Allgather of opaque messages. Keeps its receive buffers; held by one engine, not for several threads."""

    def __init__(self) -> None:
        self._arena = Scratch()

    def allgather(
        self,
        message: Bytes,
        most_bytes: Sequence[int],
        link: Link,
        what: str,
        arrived: Callable[[int, Bytes], None],
    ) -> None:
        """Send ``message`` (``uint8[any]``) to all ranks; see :class:`~sparse_ring.exchange.base.Gather`.

        The bytes given to ``arrived`` are valid until ``allgather`` is called again. Where ``arrived`` raises, the
        messages still travel to the end, so that no rank waits for this one, and the error is raised then.
        """
        rank, size = link.rank, link.size
        if len(message) > most_bytes[rank]:
            raise ValueError(f"{what}: {len(message)} bytes, but at most {most_bytes[rank]} were agreed.")
        left = [(rank - step) % size for step in range(1, size)]
        right = [(rank + step) % size for step in range(1, size)]
        buffers = self._buffers(most_bytes, left)
        receives = {source: link.recv(buffers[source], source) for source in left}
        sends = [link.send(message, destination) for destination in right]
        failure: Exception | None = None
        for source in (rank, *left):
            if source != rank:
                link.wait([receives[source]], what, (source,))
            if failure is None:
                try:
                    arrived(source, message if source == rank else buffers[source][: receives[source].nbytes])
                except Exception as error:
                    failure = error
        link.wait(sends, what, right)
        if failure is not None:
            raise failure

    def _buffers(self, most_bytes: Sequence[int], sources: Sequence[int]) -> dict[int, Bytes]:
        # Each message starts aligned. What a message does not fill of its place is address space only.
        room = {source: -(-most_bytes[source] // ALIGNMENT) * ALIGNMENT for source in sources}
        arena = self._arena.take(sum(room.values()))
        buffers, start = {}, 0
        for source in sources:
            buffers[source] = arena[start : start + most_bytes[source]]
            start += room[source]
        return buffers
