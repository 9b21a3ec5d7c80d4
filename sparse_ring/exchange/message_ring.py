"""The ring of messages: every rank's bytes to every rank, each sent once by each rank but the last to get it.

First the lengths, eight bytes from every rank to every other, so that all buffers are known. Then each rank sends its
own message to the right and forwards what comes from the left; while a message travels, the one before it is handed to
the caller to decode.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sparse_ring.engine.link import Link
from sparse_ring.errors import MessageError
from sparse_ring.exchange.base import Gather
from sparse_ring.exchange.scratch import Scratch
from sparse_ring.transport.base import Transfer

Bytes = NDArray[np.uint8]

ALIGNMENT = 64


class MessageRing(Gather):
    """Ring allgather of opaque messages. Keeps its receive buffers; held by one engine, not for several threads."""

    def __init__(self) -> None:
        self._arena = Scratch()

    def allgather(
        self,
        message: Bytes,
        link: Link,
        what: str,
        arrived: Callable[[int, Bytes], None],
        limit_bytes: int | None = None,
    ) -> None:
        """Send ``message`` (``uint8[any]``) to all ranks; see :class:`~sparse_ring.exchange.base.Gather`.

        The bytes given to ``arrived`` are valid until ``allgather`` is called again. Where ``arrived`` raises, the
        messages still travel to the end, so that no rank waits for this one, and the error is raised then.

        Raises MessageError naming the rank whose message is longer than ``limit_bytes``: on all ranks that have this
        limit, before any message moves.
        """
        lengths = self._lengths(len(message), link, what)
        for rank, length in enumerate(lengths):
            if limit_bytes is not None and length > limit_bytes:
                raise MessageError(f"{what}: {length} bytes, but at most {limit_bytes} were agreed.", rank=rank)
        if link.size == 1:
            arrived(link.rank, message)
            return
        messages = self._buffers(message, lengths, link.rank)
        self._travel(messages, link, what, arrived)

    def _lengths(self, own: int, link: Link, what: str) -> list[int]:
        table = np.zeros(link.size, dtype="<u8")
        table[link.rank] = own
        others = [rank for rank in range(link.size) if rank != link.rank]
        transfers = [link.recv(table[rank : rank + 1].view(np.uint8), rank) for rank in others]
        announced = table[link.rank : link.rank + 1].view(np.uint8)
        transfers += [link.send(announced, rank) for rank in others]
        link.wait(transfers, what, others)
        return [int(length) for length in table]

    def _buffers(self, message: Bytes, lengths: list[int], rank: int) -> list[Bytes]:
        # Each message starts aligned, whatever length another rank gave its own.
        room = [-(-length // ALIGNMENT) * ALIGNMENT for length in lengths]
        arena = self._arena.take(sum(room) - room[rank])
        buffers, start = [], 0
        for other, length in enumerate(lengths):
            if other == rank:
                buffers.append(message)
            else:
                buffers.append(arena[start : start + length])
                start += room[other]
        return buffers

    @staticmethod
    def _travel(messages: list[Bytes], link: Link, what: str, arrived: Callable[[int, Bytes], None]) -> None:
        left, right = (link.rank - 1) % link.size, (link.rank + 1) % link.size
        order = [(link.rank - step) % link.size for step in range(link.size)]
        receives = {rank: link.recv(messages[rank], left) for rank in order[1:]}
        sends: list[Transfer] = [link.send(messages[link.rank], right)]
        failure: Exception | None = None
        for rank in order:
            if rank != link.rank:
                link.wait([receives[rank]], what, (left,))
                if receives[rank].nbytes != len(messages[rank]):
                    reason = f"{what}: {len(messages[rank])} bytes were announced, but {receives[rank].nbytes} came."
                    failure = failure or MessageError(reason, rank=rank)
                if rank != order[-1]:
                    sends.append(link.send(messages[rank], right))
            if failure is None:
                try:
                    arrived(rank, messages[rank])
                except Exception as error:
                    failure = error
        link.wait(sends, what, (right,))
        if failure is not None:
            raise failure
