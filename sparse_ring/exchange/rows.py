"""Gradients of embeddings: a few rows of a large table, exchanged as rows, or densely where that is smaller."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from sparse_ring.engine.link import Link
from sparse_ring.engine.operation import Agreed, Operation, Request
from sparse_ring.errors import MessageError
from sparse_ring.exchange.exchanges import Exchanges

ROW_NUMBER = np.dtype("<i8")


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a table.

    numbers
        ``int64[count]``, distinct and increasing.
    values
        ``[count, ...]``, float32 or float64.
    """

    numbers: NDArray[np.int64]
    values: NDArray[Any]


class RowGradient(Operation):
    """Add every rank's rows of one table; the handle's result is a :class:`Rows`, the same bits on all ranks.

    rows
        This rank's; its numbers need not be distinct (they are merged first). None of them on a rank that has no gradient.
    table
        Number of rows of the whole table.
    average
        Divide by the number of ranks.
    dtype
        Of the parameter, for agreement.

    All ranks know all counts from the agreement, and so choose alike: rows through messages, or the whole table
    through the dense ring once the messages of all ranks together exceed twice its bytes.
    """

    KIND = "row gradient"

    def __init__(self, name: str, rows: Rows, table: int, *, average: bool, exchanges: Exchanges, dtype: str) -> None:
        self.rows = merged([rows], 1.0)
        self.table, self.average, self._exchanges = table, average, exchanges
        self.request = Request(
            name=name,
            kind=self.KIND,
            dtype=dtype,
            shape=self.rows.values.shape,
            detail=f"op={'Average' if average else 'Sum'}, rows of {table}",
            ragged=True,
        )
        self.nbytes = self.row_bytes * len(self.rows.numbers)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row with its number."""
        values = self.rows.values
        return ROW_NUMBER.itemsize + values.itemsize * int(np.prod(values.shape[1:]))

    @classmethod
    def run(cls, batch: Sequence[Agreed], link: Link) -> list[Any]:
        """Exchange each table by itself."""
        return [cast(RowGradient, agreed.operation)._exchange(agreed.requests, link) for agreed in batch]

    def _exchange(self, requests: Sequence[Request], link: Link) -> Rows:
        began, sent_before = time.perf_counter(), link.metrics.sent_bytes
        # An absent rank's request may be that of a dense gradient; it has no rows.
        counts = [0 if request.absent else request.shape[0] for request in requests]
        message_bytes = self.row_bytes * len(self.rows.numbers)
        table_bytes = self.rows.values.itemsize * int(np.prod(self.rows.values.shape[1:])) * self.table
        dense = self.row_bytes * sum(counts) > 2 * table_bytes
        scale = 1.0 / link.size if self.average else 1.0
        result = self._through_table(link, scale) if dense else self._through_messages(counts, link, scale)
        metrics = link.metrics
        elements = table_bytes // self.rows.values.itemsize
        metrics.dense_bytes += 4 * elements
        metrics.message_bytes += table_bytes if dense else message_bytes
        metrics.ring_bytes += 4 * elements * 2 * (link.size - 1) / link.size
        metrics.gradient_wire_bytes += metrics.sent_bytes - sent_before
        metrics.add_exchange(began)
        return result

    def _through_messages(self, counts: Sequence[int], link: Link, scale: float) -> Rows:
        own = self.rows
        numbers = own.numbers.astype(ROW_NUMBER)
        message = np.concatenate([numbers.view(np.uint8), np.ascontiguousarray(own.values).view(np.uint8).reshape(-1)])
        parts: list[Rows] = [own] * link.size
        what = f"rows of '{self.request.name}'"

        def arrived(rank: int, data: NDArray[np.uint8]) -> None:
            if len(data) != counts[rank] * self.row_bytes:
                raise MessageError(f"{what}: {len(data)} bytes for {counts[rank]} rows", rank=rank)
            split = counts[rank] * ROW_NUMBER.itemsize
            found = data[:split].view(ROW_NUMBER).astype(np.int64)
            if np.any(found < 0) or np.any(found >= self.table) or np.any(np.diff(found) <= 0):
                raise MessageError(f"{what}: row numbers are not increasing below {self.table}", rank=rank)
            values = data[split:].view(own.values.dtype).reshape(counts[rank], *own.values.shape[1:])
            parts[rank] = Rows(found, values.copy())

        self._exchanges.messages.allgather(message, [n * self.row_bytes for n in counts], link, what, arrived)
        return merged(parts, scale)

    def _through_table(self, link: Link, scale: float) -> Rows:
        values = self.rows.values
        table = np.zeros((self.table, *values.shape[1:]), dtype=values.dtype)
        table[self.rows.numbers] = values
        self._exchanges.dense("native").allreduce([table.reshape(-1)], "Sum", link, f"table of '{self.request.name}'")
        table *= values.dtype.type(scale)
        return Rows(np.arange(self.table, dtype=np.int64), table)


def merged(parts: Sequence[Rows], scale: float) -> Rows:
    """Return the sum of rows by number times ``scale``, added in the order of the parts."""
    numbers = np.concatenate([part.numbers for part in parts])
    values = np.concatenate([part.values for part in parts])
    if not len(numbers):
        return Rows(numbers, values)
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    sums = np.add.reduceat(values[order], starts, axis=0)
    return Rows(ordered[starts], sums * values.dtype.type(scale))
