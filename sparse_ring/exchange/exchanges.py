"""The exchanges of one session: its operations share them, and so their scratch."""

from __future__ import annotations

from sparse_ring.errors import ConfigError
from sparse_ring.exchange.message_mesh import MessageMesh
from sparse_ring.exchange.ring import DenseRing
from sparse_ring.exchange.wire import BFloat16Wire
from sparse_ring.kernels.base import Kernels


class Exchanges:
    """One dense ring a wire format and one mesh of messages; used on the engine's thread.

    bfloat16
        The wire format behind ``dense("bfloat16")``, for whoever has to widen or narrow bfloat16 elsewhere.
    """

    def __init__(self, kernels: Kernels) -> None:
        self.bfloat16 = BFloat16Wire(kernels)
        self.messages = MessageMesh()
        self._dense = {"native": DenseRing(), "bfloat16": DenseRing(self.bfloat16)}

    def dense(self, wire: str) -> DenseRing:
        """Return the ring for a wire format. Raises ConfigError for an unknown name."""
        if wire not in self._dense:
            raise ConfigError("wire", wire, f"one of {', '.join(self._dense)}")
        return self._dense[wire]
