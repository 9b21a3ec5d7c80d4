"""What an exchange is: an algorithm over a :class:`~sparse_ring.engine.link.Link` that all ranks run together.

Two shapes cover every recipe:

* a *reduce* adds dense arrays of the ranks, in place (``DenseRing``);
* a *gather* brings every rank's opaque message to every rank (``MessageMesh``); what the bytes mean is the caller's.

Held by ``tests/contracts/exchange.py``: the result is bit-identical on all ranks; it does not depend on timing or on which
arrays share a call (each array is cut into ``size`` parts by itself); one rank alone moves nothing; zero-size arrays are fine.
An exchange keeps no state between calls but scratch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparse_ring.engine.link import Link


class Reduce(ABC):
    """Adds (or takes the minimum or maximum of) dense arrays over all ranks."""

    @abstractmethod
    def allreduce(self, arrays: Sequence[NDArray[Any]], op: str, link: Link, what: str) -> None:
        """Replace each 1-D contiguous array by its reduction over the ranks, in place.

        All arrays of a call have one dtype. ``op`` is ``"Sum"``, ``"Min"`` or ``"Max"``; ``what`` names the work in a
        stall's error.
        """


class Gather(ABC):
    """Brings every rank's message to every rank."""

    @abstractmethod
    def allgather(
        self,
        message: NDArray[np.uint8],
        most_bytes: Sequence[int],
        link: Link,
        what: str,
        arrived: Callable[[int, NDArray[np.uint8]], None],
    ) -> None:
        """Send ``message`` to all ranks; call ``arrived(rank, message)`` once for each rank, the own one first.

        The call comes as soon as that message is here, while the next one travels; the bytes stay valid until
        ``allgather`` returns. ``most_bytes[rank]`` is what each rank's message has at most, agreed by all before. A longer one
        is an error of the transport, which ends the engine: the ranks did not do what they agreed on.
        """
