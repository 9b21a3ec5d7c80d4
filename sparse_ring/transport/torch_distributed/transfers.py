"""Sends and receives over gloo: the state that ``test()`` reads, set by the threads that wait."""

from __future__ import annotations

import ctypes
from typing import Any, Protocol

import numpy as np
import torch

from sparse_ring.errors import MessageError, SparseRingError
from sparse_ring.transport.base import Bytes, Transfer
from sparse_ring.transport.torch_distributed.peer import FOREVER

# gloo's tag of rests is this + their message's; the heads have the one below.
FIRST_TAG = 1


class Owner(Protocol):
    """The transport of a transfer."""

    @property
    def group(self) -> Any:
        """The process group of gloo."""

    def pieces(self, data: Bytes) -> list[Bytes]:
        """Cut a buffer as it travels."""

    def lose(self, rank: int, error: Exception) -> SparseRingError:
        """Note that the connection to a rank has ended; returns what transfers with it raise."""

    def check(self) -> None:
        """Raise RankLostError once any rank is lost."""

    def sent(self, transfer: GlooSend) -> None:
        """Forget a send that is done or has failed."""


class _GlooTransfer(Transfer):
    """What a send and a receive have in common; whoever waits for gloo sets ``done`` last, or ``error``."""

    __slots__ = ("_data", "_nbytes", "_transport", "done", "error")

    def __init__(self, transport: Owner, data: Bytes) -> None:
        self._transport, self._data, self._nbytes = transport, data, len(data)
        self.done = False
        self.error: SparseRingError | None = None

    def test(self) -> bool:
        """Return whether it is done. Raises its own error, and RankLostError once any rank is lost."""
        if not self.done:
            if self.error is not None:
                raise self.error.with_traceback(None)
            self._transport.check()
        return self.done

    @property
    def nbytes(self) -> int:
        """Bytes that were moved."""
        return self._nbytes


class GlooSend(_GlooTransfer):
    """A send; ``works`` are gloo's for the rest."""

    __slots__ = ("_rank", "works")

    def __init__(self, transport: Owner, data: Bytes, rank: int) -> None:
        super().__init__(transport, data)
        self._rank = rank
        self.works: list[Any] = []

    def wait(self) -> None:
        """Wait for all pieces, in a thread of the pool."""
        try:
            for work in self.works:
                work.wait(FOREVER)
        except RuntimeError as error:
            self.error = self._transport.lose(self._rank, error)
        self.works.clear()
        self._data = self._data[:0].copy()
        # Last: whoever sees that it is done may close the transport.
        self._transport.sent(self)
        self.done = self.error is None


class GlooReceive(_GlooTransfer):
    """A receive; ``begin`` is called once its head is there."""

    __slots__ = ("_source", "_tag", "_works")

    def __init__(self, transport: Owner, buffer: Bytes, source: int, tag: int) -> None:
        super().__init__(transport, buffer)
        # Until the message has told its own length.
        self._nbytes = 0
        self._source, self._tag = source, tag
        self._works: list[Any] = []

    def begin(self, nbytes: int, payload: Bytes | None) -> bool:
        """Take the head's data, or post what receives the rest; returns True where ``wait_for_rest`` must follow."""
        fits = nbytes <= len(self._data)
        if not fits:
            text = f"{nbytes} bytes arrived, but the buffer holds {len(self._data)}"
            self.error = MessageError(text, rank=self._source)
        self._nbytes = nbytes
        if payload is None:
            # What does not fit is received all the same, so that its sender gets done and later messages keep their order.
            room = self._data[:nbytes] if fits else np.empty(nbytes, dtype=np.uint8)
            self._works = [
                self._transport.group.recv([tensor_on(piece)], self._source, FIRST_TAG + self._tag)
                for piece in self._transport.pieces(room)
            ]
            return True
        if fits:
            self._data[:nbytes] = payload
            self._finish()
        return False

    def wait_for_rest(self) -> None:
        """Wait for all pieces, in the reader or a thread of the pool."""
        try:
            for work in self._works:
                work.wait(FOREVER)
            self._finish()
        except RuntimeError as error:
            self.error = self.error or self._transport.lose(self._source, error)

    def _finish(self) -> None:
        self._works.clear()
        self._data = self._data[:0].copy()
        self.done = self.error is None


def tensor_on(data: Bytes) -> torch.Tensor:
    """Return a tensor on the same bytes; torch warns of arrays that are read-only, which gloo only reads."""
    if not data.flags.writeable:
        data = np.ctypeslib.as_array((ctypes.c_uint8 * len(data)).from_address(data.ctypes.data))
    return torch.from_numpy(data)
