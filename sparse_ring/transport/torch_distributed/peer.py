"""The connection to one rank over gloo: heads of messages in both directions, and how it is closed.

A head is a u64 length, a u64 tag and, up to ``EAGER_BYTES``, the message's data.
"""

from __future__ import annotations

import logging
import struct
import threading
from collections import deque
from datetime import timedelta
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch

from sparse_ring.transport.base import Bytes
from sparse_ring.transport.torch_distributed.waiters import Waiters

LOGGER = logging.getLogger(__name__)

EAGER_BYTES = 64 << 10
SLOTS = 4
UNRETIRED_HEADS = 32
FOREVER = timedelta(days=365)

HEAD = struct.Struct("<QQ")
HEADS_TAG = 0
CLOSED = 2**64 - 1


class Rest(Protocol):
    """A receive whose head has come."""

    def wait_for_rest(self) -> None:
        """Wait for the rest of the message."""


class Owner(Protocol):
    """Whom a connection tells what comes; called from several threads."""

    rank: int

    @property
    def waiters(self) -> Waiters:
        """The threads for blocking waits."""

    def arrived(self, source: int, tag: int, nbytes: int, payload: Bytes | None) -> Rest | None:
        """Take a head; returns what the reader has to wait for before the next one."""

    def left(self, source: int) -> None:
        """Note that the peer has closed the connection in order."""

    def lose(self, rank: int, error: Exception) -> object:
        """Note that the connection has ended in another way."""


class GlooPeer(threading.Thread):
    """One peer; as a thread, the reader of its heads.

    closed
        The peer has said that it sends nothing more.
    delivered
        Set once the peer's process has been told the same, or cannot be.
    """

    def __init__(self, owner: Owner, group: Any, rank: int) -> None:
        super().__init__(name=f"sparse_ring-reader-{owner.rank}-of-{rank}", daemon=True)
        self.closed = False
        self.delivered = threading.Event()
        self._owner, self._group, self._rank = owner, group, rank
        self._slots: deque[tuple[Bytes, Any]] = deque()
        # Heads on their way, each with its buffer: a thread looks after them when there are many.
        self._heads: deque[tuple[Any, Bytes]] = deque()
        self._retiring = self._said_closed = False
        self._saying, self._retire_lock = threading.Lock(), threading.Lock()
        for _ in range(SLOTS):
            self._post(np.empty(HEAD.size + EAGER_BYTES, dtype=np.uint8))

    def run(self) -> None:
        """Read heads until the peer closes or is lost."""
        try:
            while self._read():
                pass
        except Exception as error:
            # Whatever it was: a peer that nobody listens to any more is lost.
            self._owner.lose(self._rank, error)

    def send_head(self, nbytes: int, tag: int, data: Bytes | None = None) -> None:
        """Send a head, with a copy of the data where given. Raises RuntimeError where the connection has ended."""
        head = np.empty(HEAD.size + (0 if data is None else nbytes), dtype=np.uint8)
        HEAD.pack_into(head, 0, nbytes, tag)  # type: ignore[arg-type]
        if data is not None:
            head[HEAD.size :] = data
        self._heads.append((self._group.send([torch.from_numpy(head)], self._rank, HEADS_TAG), head))
        if len(self._heads) > UNRETIRED_HEADS and not self._retiring:
            self._retiring = True
            self._owner.waiters.run(self._retire)

    def say_closed(self) -> None:
        """Send the last head, once."""
        with self._saying:
            if self._said_closed:
                return
            self._said_closed = True
        try:
            self.send_head(0, CLOSED)
        except RuntimeError:
            self.delivered.set()
            return
        self._owner.waiters.run(partial(self._retire, self.delivered))

    def cut(self) -> None:
        """End the connection, and with it all waits for it."""
        scratch = torch.empty(1, dtype=torch.uint8)
        try:
            self._group.recv([scratch], self._rank, HEADS_TAG).wait(timedelta(milliseconds=1))
        except RuntimeError as error:
            LOGGER.debug("The connection to rank %d is cut: %s", self._rank, error)

    def _read(self) -> bool:
        """Take one head; returns False after the last."""
        buffer, work = self._slots.popleft()
        work.wait(FOREVER)
        nbytes, tag = HEAD.unpack_from(buffer)  # type: ignore[arg-type]
        if tag == CLOSED:
            self.closed = True
            self._owner.left(self._rank)
            self.say_closed()
            return False
        payload = buffer[HEAD.size :][:nbytes] if nbytes <= EAGER_BYTES else None
        rest = self._owner.arrived(self._rank, tag, nbytes, payload)
        try:
            self._post(buffer)
        except RuntimeError:
            # The connection has ended, but heads that came before are still in the other slots.
            if not self._slots:
                raise
        if rest is not None:
            rest.wait_for_rest()
        return True

    def _post(self, buffer: Bytes) -> None:
        self._slots.append((buffer, self._group.recv([torch.from_numpy(buffer)], self._rank, HEADS_TAG)))

    def _retire(self, done: threading.Event | None = None) -> None:
        try:
            with self._retire_lock:
                while self._heads:
                    self._heads.popleft()[0].wait(FOREVER)
        except RuntimeError as error:
            self._owner.lose(self._rank, error)
        self._retiring = False
        if done is not None:
            done.set()
