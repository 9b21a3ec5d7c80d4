"""The allgather operation: rows of every rank, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from sparse_ring.engine.link import Link
from sparse_ring.engine.operation import Agreed, Operation, Request
from sparse_ring.errors import MessageError
from sparse_ring.exchange.message_mesh import MessageMesh

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Gathered:
    """Result of an :class:`Allgather`.

    data
        ``uint8``, the ranks' rows in rank order.
    rows
        First dimension of each rank's tensor.
    """

    data: Bytes
    rows: tuple[int, ...]


class Allgather(Operation):
    """Bring every rank's tensor to every rank; the handle's result is a :class:`Gathered`. First dimensions may differ.

    data
        The tensor's bytes, ``uint8`` 1-D; belongs to the engine until the handle is done.
    dtype, shape
        Of the tensor, with one dimension at least; all but the first must agree between ranks.
    row_bytes
        Bytes of one row: of everything behind the first dimension.
    ring
        The exchange to use.
    """

    def __init__(
        self, name: str, data: Bytes, *, dtype: str, shape: tuple[int, ...], row_bytes: int, mesh: MessageMesh
    ) -> None:
        if not shape:
            raise ValueError(
                f"Tensor '{name}': allgather joins first dimensions, but this tensor has none; reshape it to (1,)."
            )
        self.data, self.row_bytes, self.mesh = data, row_bytes, mesh
        self.request = Request(name=name, kind="allgather", dtype=dtype, shape=shape, ragged=True)
        self.nbytes = row_bytes

    @classmethod
    def run(cls, batch: Sequence[Agreed], link: Link) -> list[Any]:
        """Gather each tensor by itself."""
        return [cast(Allgather, agreed.operation)._gather(agreed.requests, link) for agreed in batch]

    def _gather(self, requests: Sequence[Request], link: Link) -> Gathered:
        rows = tuple(request.shape[0] for request in requests)
        ends = np.cumsum([count * self.row_bytes for count in rows])
        data = np.empty(int(ends[-1]), dtype=np.uint8)
        what = f"allgather '{self.request.name}'"

        def arrived(rank: int, message: Bytes) -> None:
            expected = rows[rank] * self.row_bytes
            if len(message) != expected:
                reason = f"{what}: {len(message)} bytes came, but the agreed shape has {expected}."
                raise MessageError(reason, rank=rank)
            data[int(ends[rank]) - expected : int(ends[rank])] = message

        self.mesh.allgather(self.data, [count * self.row_bytes for count in rows], link, what, arrived)
        return Gathered(data, rows)
