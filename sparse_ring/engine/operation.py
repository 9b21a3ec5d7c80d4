"""The engine's small protocol: what it is handed and what all ranks agree on before anything moves.

The engine imports no recipe and no collective. It sees named operations, agrees with the other ranks on which are
ready everywhere and in what order, fuses those that may travel together, and calls :meth:`Operation.run`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from sparse_ring.engine.link import Link


@dataclass(frozen=True, slots=True)
class Request:
    """What one rank says about one operation; every rank sees every rank's request.

    name
        Unique among the operations in flight; the same on all ranks.
    kind
        ``"allreduce"``, ``"allgather"``, ``"broadcast"``, ``"barrier"``, ``"clock"`` or ``"gradient"``.
    dtype, shape
        Of the tensor. All ranks must agree, but for the first dimension where ``ragged``.
    detail
        Whatever else must be the same on all ranks, as text that an error can show
        (``"op=Sum"``, ``"root=0"``, a recipe's fingerprint).
    absent
        This rank has nothing to give, and asks whether another has. Absent on all ranks: the operation ends with
        the result None and is not run. Absent on some: it runs, and those ranks give zeros.
    ragged
        First dimensions may differ (allgather).
    """

    name: str
    kind: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    detail: str = ""
    absent: bool = False
    ragged: bool = False


@dataclass(frozen=True, slots=True)
class Agreed:
    """An operation that every rank has submitted, with what each rank said of it (index = rank).

    payloads
        What came with the requests, None from absent ranks; empty unless every present rank has sent its payload.
    """

    operation: Operation
    requests: tuple[Request, ...]
    payloads: tuple[bytes | None, ...] = ()


class Operation(ABC):
    """One named piece of work for all ranks.

    request
        See :class:`Request`.
    nbytes
        What it adds to a bucket, for the fusion threshold; the same on all ranks.
    prepares
        Whether ``prepare`` does anything.
    gathers
        Every rank's data goes to every rank anyway, so payloads cost no more bytes than an exchange would.
    payload_bytes
        How many bytes of data it can send along with its request; 0: none.
    alternative
        Of an absent operation: makes the one that takes part where the other ranks' is of another kind.
    """

    prepares: ClassVar[bool] = False
    gathers: ClassVar[bool] = False

    request: Request
    nbytes: int
    payload_bytes: int = 0
    alternative: Callable[[], Operation] | None = None

    @property
    def fusion_key(self) -> Hashable | None:
        """Operations with equal keys may be run as one batch; None travels alone.

        Must be derived from what ranks agree on, so that all ranks form the same buckets.
        """
        return None

    def prepare(self, link: Link) -> None:  # noqa: B027
        """Do what needs no other rank, while the engine would wait; must not raise, and may never be called.

        Only where ``prepares``, and on the engine's thread. What fails is for ``run`` to tell.
        """

    def payload(self, size: int) -> bytes:
        """Return the ``payload_bytes`` bytes that travel with the request to the other ``size - 1`` ranks.

        Called at most once, on the engine's thread, and only where ``payload_bytes`` is not 0. Whether it is, each rank
        decides by itself, so ``run`` must give the same result with payloads and without.
        """
        raise NotImplementedError

    @classmethod
    @abstractmethod
    def run(cls, batch: Sequence[Agreed], link: Link) -> list[Any]:
        """Carry out a bucket; called on the engine's thread, on every rank with the same names in the same order.

        Returns one result per member, in order: the value for its handle, or an exception instance that fails this
        handle alone. An exception that is raised fails the whole batch. Results must not depend on which operations
        share a bucket.
        """
