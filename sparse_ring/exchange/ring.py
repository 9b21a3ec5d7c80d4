"""The dense ring: reduce-scatter, then allgather, each rank sending ``2 * (size - 1) / size`` of the bytes.

Each array by itself is cut into ``size`` parts (the first ``n % size`` one element longer), and what travels as chunk
c is the concatenation of every array's part c. So an element's chunk, and with it the order in which ranks are added,
depends on its own array alone, never on what shares the call: chunk c starts at rank c and is reduced by ranks c+1,
c+2, … in this order.

Chunks travel in segments: while one is added, the next is on its way. Partial results live in scratch of bounded size
(a *window* of each chunk at a time); the arrays are only read until their reduced parts arrive.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparse_ring.engine.link import Link
from sparse_ring.exchange.base import Reduce
from sparse_ring.exchange.scratch import Scratch
from sparse_ring.exchange.wire import REDUCTIONS, NativeWire, WireFormat
from sparse_ring.transport.base import Transfer

SEGMENT_BYTES = 1 << 20
WINDOW_BYTES = 8 << 20
# Three buffers take turns: one is being received, one reduced and sent on, one waits for its sends to end.
_BUFFERS = 3

Piece = tuple[NDArray[Any], int]


def part_bounds(elements: int, number: int, size: int) -> tuple[int, int]:
    """Return where part ``number`` of an array of so many elements, cut into ``size``, starts and stops."""
    length, longer = divmod(elements, size)
    start = number * length + min(number, longer)
    return start, start + length + (number < longer)


class _Chunk:
    """One chunk: part ``number`` of every array, laid end to end. Offsets count elements."""

    def __init__(self, arrays: Sequence[NDArray[Any]], number: int, size: int) -> None:
        self._parts = []
        for array in arrays:
            start, stop = part_bounds(len(array), number, size)
            self._parts.append(array[start:stop])
        self._ends = list(accumulate(len(part) for part in self._parts))
        self.elements = self._ends[-1]

    def pieces(self, low: int, high: int) -> Iterator[Piece]:
        """Yield what lies in [low, high): slices of the arrays and the offset from ``low`` at which each starts."""
        index, position = bisect_right(self._ends, low), low
        while position < high:
            part, begin = self._parts[index], self._ends[index] - len(self._parts[index])
            piece = part[position - begin : high - begin]
            if len(piece):
                yield piece, position - low
            position, index = position + len(piece), index + 1


class DenseRing(Reduce):
    """Ring allreduce over a wire format (default: the arrays' own dtype). Held by one engine; not for several threads.

    segment_bytes, window_bytes
        Wire bytes of a segment, and of the part of a chunk that is under way at a time. Results do not depend on them.
    """

    def __init__(
        self, wire: WireFormat | None = None, *, segment_bytes: int = SEGMENT_BYTES, window_bytes: int = WINDOW_BYTES
    ) -> None:
        self.wire = NativeWire() if wire is None else wire
        self._segment_bytes, self._window_bytes = segment_bytes, window_bytes
        self._scratch = Scratch()

    def allreduce(self, arrays: Sequence[NDArray[Any]], op: str, link: Link, what: str) -> None:
        """Reduce in place; see :class:`~sparse_ring.exchange.base.Reduce`.

        Raises ValueError for an unknown op, mixed dtypes or a dtype that the wire cannot carry.
        """
        if op not in REDUCTIONS:
            raise ValueError(f"{what}: op is {op!r}, but a ring knows {', '.join(REDUCTIONS)}.")
        if len({array.dtype for array in arrays}) > 1:
            raise ValueError(
                f"{what}: arrays of one call must share a dtype, not {sorted({str(a.dtype) for a in arrays})}."
            )
        if link.size == 1 or not arrays:
            return
        _Turn(self, arrays, op, link, what).run(self._window_bytes, self._segment_bytes, self._scratch)

    def reduce_here(self, ranks: Sequence[NDArray[Any]], op: str, out: NDArray[Any]) -> None:
        """Write into ``out`` what ``allreduce`` would leave of one 1-D array of each rank (index = rank), bit for bit.

        ``out`` has their dtype and shares no memory with them.
        """
        size, wire = len(ranks), self.wire
        dtype = wire.dtype(out.dtype)
        # Where elements travel as they are, the result's own memory can hold the partial results.
        partial = out if dtype == out.dtype else np.empty(len(out), dtype)
        for first in range(size):
            start, stop = part_bounds(len(out), first, size)
            if start == stop:
                break
            segment = partial[start:stop]
            wire.pack(ranks[first][start:stop], segment)
            for step in range(1, size):
                wire.accumulate(ranks[(first + step) % size][start:stop], segment, op)
            if partial is not out:
                wire.unpack(segment, out[start:stop])


class _Turn:
    """One call of the ring."""

    def __init__(self, ring: DenseRing, arrays: Sequence[NDArray[Any]], op: str, link: Link, what: str) -> None:
        self._wire, self._op, self._link, self._what = ring.wire, op, link, what
        self._dtype = ring.wire.dtype(arrays[0].dtype)
        self._chunks = [_Chunk(arrays, number, link.size) for number in range(link.size)]
        self._right, self._left = (link.rank + 1) % link.size, (link.rank - 1) % link.size

    def run(self, window_bytes: int, segment_bytes: int, scratch: Scratch) -> None:
        longest = self._chunks[0].elements
        item = self._dtype.itemsize
        window = min(max(1, window_bytes // item), longest)
        self._segment = max(1, segment_bytes // item)
        # 64-byte steps keep every buffer aligned for its dtype.
        stride = -(-window * item // 64) * 64
        memory = scratch.take(_BUFFERS * stride)
        self._buffers = [memory[i * stride :][: window * item].view(self._dtype) for i in range(_BUFFERS)]
        # Overflow to infinity and NaN are results here, not accidents to warn of.
        with np.errstate(all="ignore"):
            for start in range(0, longest, max(1, window)):
                self._window(start, start + window)

    def _window(self, start: int, stop: int) -> None:
        rank, size, link = self._link.rank, self._link.size, self._link
        sends: list[list[Transfer]] = [[] for _ in range(_BUFFERS)]
        arriving = self._receive(rank - 1, start, stop, 1)
        for low, high in self._segments(rank, start, stop):
            segment = self._buffers[0][low - start : high - start]
            for part, offset in self._chunks[rank].pieces(low, high):
                self._wire.pack(part, segment[offset : offset + len(part)])
            sends[0].append(link.send(segment.view(np.uint8), self._right))
        steps = 2 * (size - 1)
        for step in range(steps):
            chunk, slot, following = (rank - step - 1) % size, (step + 1) % _BUFFERS, []
            if step + 1 < steps:
                free = (step + 2) % _BUFFERS
                link.wait(sends[free], self._what, (self._right,))
                sends[free] = []
                following = self._receive(chunk - 1, start, stop, free)
            for (low, high), transfer in zip(self._segments(chunk, start, stop), arriving, strict=True):
                link.wait([transfer], self._what, (self._left,))
                segment = self._buffers[slot][low - start : high - start]
                if step < size - 1:
                    self._reduce(chunk, low, high, segment)
                if step + 1 < steps:
                    sends[slot].append(link.send(segment.view(np.uint8), self._right))
                if step >= size - 2:
                    self._store(chunk, low, high, segment)
            arriving = following
        link.wait([transfer for slot_sends in sends for transfer in slot_sends], self._what, (self._right,))

    def _segments(self, chunk: int, start: int, stop: int) -> list[tuple[int, int]]:
        stop = min(stop, self._chunks[chunk].elements)
        return [(low, min(low + self._segment, stop)) for low in range(start, stop, self._segment)]

    def _receive(self, chunk: int, start: int, stop: int, slot: int) -> list[Transfer]:
        buffer = self._buffers[slot]
        segments = self._segments(chunk % self._link.size, start, stop)
        return [
            self._link.recv(buffer[low - start : high - start].view(np.uint8), self._left) for low, high in segments
        ]

    def _reduce(self, chunk: int, low: int, high: int, segment: NDArray[Any]) -> None:
        for part, offset in self._chunks[chunk].pieces(low, high):
            self._wire.accumulate(part, segment[offset : offset + len(part)], self._op)

    def _store(self, chunk: int, low: int, high: int, segment: NDArray[Any]) -> None:
        for part, offset in self._chunks[chunk].pieces(low, high):
            self._wire.unpack(segment[offset : offset + len(part)], part)
