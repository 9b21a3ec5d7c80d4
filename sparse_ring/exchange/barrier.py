"""The barrier: an operation that moves nothing, since agreement on it already tells that every rank has come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparse_ring.engine.link import Link
from sparse_ring.engine.operation import Agreed, Operation, Request


class Barrier(Operation):
    """Done once every rank has submitted it; the handle's result is None."""

    def __init__(self, name: str) -> None:
        self.request = Request(name=name, kind="barrier")
        self.nbytes = 0

    @classmethod
    def run(cls, batch: Sequence[Agreed], link: Link) -> list[Any]:
        """Return at once."""
        return [None for _ in batch]
