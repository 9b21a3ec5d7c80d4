"""The exchanges of one session: its operations share them, and so their scratch."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, TypeVar

from sparse_ring.errors import ConfigError
from sparse_ring.exchange.message_mesh import MessageMesh
from sparse_ring.exchange.ring import DenseRing
from sparse_ring.exchange.wire import BFloat16Wire, Float16Wire
from sparse_ring.kernels.base import Kernels

# Names that are used once only must not fill the memory.
MOST_REMEMBERED = 8192

Made = TypeVar("Made")


class Exchanges:
    """One dense ring a wire format and one mesh of messages; used on the engine's thread, but for what is remembered.

    bfloat16
        The wire format behind ``dense("bfloat16")``, for whoever has to widen or narrow bfloat16 elsewhere.
    """

    def __init__(self, kernels: Kernels) -> None:
        self.bfloat16 = BFloat16Wire(kernels)
        self.messages = MessageMesh()
        self._remembered: dict[Hashable, Any] = {}
        self._dense = {
            "native": DenseRing(),
            "bfloat16": DenseRing(self.bfloat16),
            "float16": DenseRing(Float16Wire(kernels)),
        }

    def dense(self, wire: str) -> DenseRing:
        """Return the ring for a wire format. Raises ConfigError for an unknown name."""
        if wire not in self._dense:
            raise ConfigError("wire", wire, f"one of {', '.join(self._dense)}")
        return self._dense[wire]

    def remembered(self, key: Hashable) -> Any:
        """Return what was remembered under a key, from any thread; None where it is not, or no longer."""
        return self._remembered.get(key)

    def remember(self, key: Hashable, made: Made) -> Made:
        """Keep what operations of equal settings share, and return it; all of it is forgotten when it becomes too much."""
        if len(self._remembered) >= MOST_REMEMBERED:
            self._remembered.clear()
        self._remembered[key] = made
        return made
