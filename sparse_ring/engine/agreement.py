"""Which operations every rank has submitted, and in what order they run: the same answer on all ranks.

There is no coordinator. Each rank feeds the frames of a round, its own among them, into its Agreement in rank order;
equal inputs in equal order give equal tables, so all ranks agree without another message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

from sparse_ring.engine.frames import Frame, pack_cached, pack_request
from sparse_ring.engine.mismatch import mismatch
from sparse_ring.engine.operation import Request
from sparse_ring.errors import MessageError, MismatchError


@dataclass(frozen=True, slots=True)
class Decision:
    """An operation that all ranks have submitted; ``error`` where they mean different things by its name.

    ``payloads`` are as in :class:`~sparse_ring.engine.operation.Agreed`.
    """

    name: str
    requests: tuple[Request, ...]
    error: MismatchError | None = None
    payloads: tuple[bytes | None, ...] = ()


@dataclass(slots=True)
class _Pending:
    """Who has submitted a name so far, and what came along; early payloads wait here."""

    requests: list[Request | None]
    payloads: list[bytes | None]
    count: int = 0


@dataclass(frozen=True, slots=True)
class _Remembered:
    """Every rank's last agreed request under a name, as present and as absent (index = rank)."""

    present: tuple[Request, ...]
    absent: tuple[Request, ...]

    def covers(self, requests: tuple[Request, ...]) -> bool:
        # Tuples compare by identity first, and mostly that is all it takes.
        return requests == self.present or all(
            request is present or request is absent
            for request, present, absent in zip(requests, self.present, self.absent, strict=True)
        )


class Agreement:
    """The table of one group of ranks: name -> request of each rank, and the cache of agreed names.

    ``cache_capacity`` must be set to the same number on all ranks before the first :meth:`process`.
    Cache ids are given in agreed order and never taken back: a working set that exceeds the capacity keeps hits for
    the names that came first, where replacing the oldest would lose all of them in each step.
    """

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.cache_capacity = 0
        self._pending: dict[str, _Pending] = {}
        self._ids: dict[str, int] = {}
        self._remembered: list[_Remembered] = []

    def entry(self, request: Request) -> tuple[bytes, Request]:
        """Return this rank's request as an entry of a frame, and as the object to process for this rank.

        Raises ValueError naming the tensor where it doesn't fit a frame.
        """
        cache_id = self._ids.get(request.name)
        if cache_id is not None:
            known = self.cached(cache_id, self.rank, request.absent)
            if known is request or known == request:
                return pack_cached(cache_id, request.absent), known
        return pack_request(request), request

    def cached(self, cache_id: int, rank: int, absent: bool) -> Request:
        """Return the remembered request of a rank. Raises LookupError for an id that was never given."""
        if cache_id >= len(self._remembered):
            raise LookupError(f"cache id {cache_id} of {len(self._remembered)}")
        remembered = self._remembered[cache_id]
        return (remembered.absent if absent else remembered.present)[rank]

    def process(self, frames: Mapping[int, Frame]) -> list[Decision]:
        """Take a round's frames of all ranks; return the operations that are now agreed, in their order.

        Raises MessageError where a rank repeats a name that is still open.
        """
        complete = []
        for rank in range(self.size):
            frame = frames[rank]
            for place, request in enumerate(frame.requests):
                pending = self._pending.get(request.name)
                if pending is None:
                    pending = self._pending[request.name] = _Pending([None] * self.size, [None] * self.size)
                if pending.requests[rank] is not None:
                    raise MessageError(f"control frame repeats '{request.name}'", rank=rank)
                pending.requests[rank] = request
                pending.payloads[rank] = frame.payloads.get(place)
                pending.count += 1
                if pending.count == self.size:
                    complete.append(request.name)
        return [self._decide(name) for name in complete]

    def missing(self, name: str, frames: Mapping[int, Frame]) -> list[int]:
        """Return the ranks that have submitted ``name`` neither before nor in the frames of the current round."""
        pending = self._pending.get(name)
        requests = pending.requests if pending is not None else [None] * self.size
        said = {rank for rank, frame in frames.items() if any(request.name == name for request in frame.requests)}
        return [rank for rank in range(self.size) if requests[rank] is None and rank not in said]

    def _decide(self, name: str) -> Decision:
        pending = self._pending.pop(name)
        requests = cast(tuple[Request, ...], tuple(pending.requests))
        cache_id = self._ids.get(name)
        if cache_id is None or not self._remembered[cache_id].covers(requests):
            text = mismatch(requests)
            if text is not None:
                return Decision(name, requests, MismatchError(name, text))
            self._remember(name, cache_id, requests)
        payloads = tuple(pending.payloads)
        if None in payloads and not all(
            payload is not None or request.absent for request, payload in zip(requests, payloads, strict=True)
        ):
            payloads = ()
        return Decision(name, requests, payloads=payloads)

    def _remember(self, name: str, cache_id: int | None, requests: tuple[Request, ...]) -> None:
        if cache_id is None and len(self._remembered) >= self.cache_capacity:
            return
        # Ranks mostly say the same: one object for equal requests keeps the cache small and later comparisons cheap.
        # It is this rank's own, which operations hand over again and again.
        pairs: dict[Request, tuple[Request, Request]] = {}
        own = requests[self.rank]
        if not own.absent:
            pairs[own] = (own, replace(own, absent=True))
        chosen = []
        for request in requests:
            present = replace(request, absent=False) if request.absent else request
            if present not in pairs:
                pairs[present] = (present, replace(present, absent=True))
            chosen.append(pairs[present])
        remembered = _Remembered(tuple(pair[0] for pair in chosen), tuple(pair[1] for pair in chosen))
        if cache_id is None:
            self._ids[name] = len(self._remembered)
            self._remembered.append(remembered)
        else:
            self._remembered[cache_id] = remembered
