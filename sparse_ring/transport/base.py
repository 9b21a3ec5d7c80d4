"""What a transport is: it moves bytes between ranks and knows no gradient.

The contract, held by ``tests/contracts/transport.py``:

* ``isend`` and ``irecv`` return at once with a :class:`Transfer`; nothing blocks.
* Between two ranks, messages of one tag arrive in the order in which they were sent; tags do not overtake
  one another's buffers.
* A receive's buffer may be larger than the message; ``Transfer.nbytes`` then says how much arrived.
  A message larger than the buffer is an error at ``test()``.
* The caller keeps a buffer alive and unchanged until its transfer is done.
* ``test()`` makes progress, holds no lock for long, releases the GIL where it waits, and never raises for a slow peer.
* Only one thread (the engine's) calls a transport; it calls ``open`` first and ``close`` last. ``abort`` alone may come
  from any thread.
* Sizes have no limit: a transport splits what its library cannot send at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]


class Transfer(ABC):
    """A send or a receive that was started."""

    @abstractmethod
    def test(self) -> bool:
        """Return whether the transfer is done, making progress on it. May be called again after True."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes that were moved; valid once ``test()`` returned True."""


class Transport(ABC):
    """Point-to-point transfers among ``size`` ranks."""

    rank: int
    size: int

    @abstractmethod
    def open(self) -> None:
        """Make what the transfers need; may wait for the other ranks. Called once, by the thread that makes them."""

    @abstractmethod
    def isend(self, data: Bytes, destination: int, tag: int) -> Transfer:
        """Start sending ``data`` (1-D contiguous ``uint8``) to rank ``destination``."""

    @abstractmethod
    def irecv(self, buffer: Bytes, source: int, tag: int) -> Transfer:
        """Start receiving into ``buffer`` (1-D contiguous ``uint8``) from rank ``source``."""

    @abstractmethod
    def close(self) -> None:
        """Free what the transport holds; called by the thread that made the transfers.

        All of them are done before, unless the engine failed: then what is left is given up, and nothing blocks.
        """

    @abstractmethod
    def abort(self, code: int) -> None:
        """End the whole job with this exit code: every other rank is ended, or its ``test()`` raises."""
