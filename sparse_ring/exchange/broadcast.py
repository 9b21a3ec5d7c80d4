"""The broadcast operation: a binomial tree for what is small, a pipelined chain for what is large."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from sparse_ring.engine.link import Link
from sparse_ring.engine.operation import Agreed, Operation, Request
from sparse_ring.transport.base import Transfer

Bytes = NDArray[np.uint8]

# Up to here latency costs more than a copy: tensors are packed into one message.
TREE_BYTES = 256 << 10
SEGMENT_BYTES = 512 << 10


class Broadcast(Operation):
    """Overwrite ``data`` with the root's, on every rank; the handle's result is ``data``.

    data
        The tensor's bytes, ``uint8`` 1-D, written in place; belongs to the engine until the handle is done.
    root
        Rank that gives.
    dtype, shape
        Of the tensor; the same on all ranks.
    """

    def __init__(self, name: str, data: Bytes, *, root: int, dtype: str, shape: tuple[int, ...]) -> None:
        self.data, self.root = data, root
        self.request = Request(name=name, kind="broadcast", dtype=dtype, shape=shape, detail=f"root={root}")
        self.nbytes = len(data)

    @property
    def fusion_key(self) -> tuple[str, int]:
        """Broadcasts from one root travel together, whatever their dtypes."""
        return ("broadcast", self.root)

    @classmethod
    def run(cls, batch: Sequence[Agreed], link: Link) -> list[Any]:
        """Send all tensors of the bucket down a tree or along a chain."""
        operations = [cast(Broadcast, agreed.operation) for agreed in batch]
        arrays = [operation.data for operation in operations]
        first = operations[0]
        what = f"broadcast '{first.request.name}'" + (f" and {len(batch) - 1} more" if len(batch) > 1 else "")
        if link.size > 1:
            total = sum(len(array) for array in arrays)
            (_tree if total <= TREE_BYTES else _chain)(arrays, first.root, link, what)
        return arrays


def _tree(arrays: Sequence[Bytes], root: int, link: Link, what: str) -> None:
    """Receive everything as one message from the parent, send it to the children, the farthest first."""
    packed = np.concatenate(arrays)
    place, mask = (link.rank - root) % link.size, 1
    while mask < link.size and not place & mask:
        mask <<= 1
    if place:
        parent = (place - mask + root) % link.size
        link.wait([link.recv(packed, parent)], what, (parent,))
        start = 0
        for array in arrays:
            array[:] = packed[start : start + len(array)]
            start += len(array)
    children = []
    while (mask := mask >> 1) > 0:
        if place + mask < link.size:
            children.append((place + mask + root) % link.size)
    link.wait([link.send(packed, child) for child in children], what, children)


def _chain(arrays: Sequence[Bytes], root: int, link: Link, what: str) -> None:
    """Each rank passes segments on to the next as they come: the time of one transfer, however many ranks."""
    segments = [array[i : i + SEGMENT_BYTES] for array in arrays for i in range(0, len(array), SEGMENT_BYTES)]
    place = (link.rank - root) % link.size
    left, right = (link.rank - 1) % link.size, (link.rank + 1) % link.size
    receives = [link.recv(segment, left) for segment in segments] if place else []
    sends: list[Transfer] = []
    for index, segment in enumerate(segments):
        if place:
            link.wait([receives[index]], what, (left,))
        if place < link.size - 1:
            sends.append(link.send(segment, right))
    link.wait(sends, what, (right,))
