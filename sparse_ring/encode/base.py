"""What the two halves of a codec are. ``docs/wire-format.md`` has the bits; ``tests/golden`` guards them.

A code keeps no state from frame to frame; all ranks know it by its ``identifier``, a small number that never changes its meaning.
``encode`` trusts its input; ``decode`` trusts nothing: it raises :class:`~sparse_ring.errors.MessageError` with a reason and
writes only into the arrays it was given, which are scratch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from sparse_ring.encode.coding import Coding
from sparse_ring.kernels.base import Kernels

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]
Indices = NDArray[np.uint32]


class IndexChoice(ABC):
    """Which code a frame's positions get; a code chooses itself."""

    name: ClassVar[str]

    @abstractmethod
    def choose(self, indices: Indices, numel: int, kernels: Kernels) -> IndexCode:
        """Return the code for strictly increasing ``indices`` (``uint32[count]``) below ``numel``."""

    @abstractmethod
    def most(self, count: int, numel: int) -> int:
        """Return an upper bound of the bytes for any positions below ``numel``, ``count`` or fewer."""


class IndexCode(IndexChoice):
    """Positions as bits."""

    identifier: ClassVar[int]

    def choose(self, indices: Indices, numel: int, kernels: Kernels) -> IndexCode:
        """Return the code itself."""
        return self

    def most(self, count: int, numel: int) -> int:
        """See :meth:`IndexChoice.most`."""
        # Fewer positions lie further apart, which may cost each of them part of a bit more.
        return self.bound(count, numel) + count // 8 + 16

    @abstractmethod
    def bound(self, count: int, numel: int) -> int:
        """Return an upper bound of the bytes for any ``count`` positions below ``numel``."""

    @abstractmethod
    def size(self, indices: Indices, numel: int, kernels: Kernels) -> int:
        """Return the bytes that ``encode`` would write, without writing them."""

    @abstractmethod
    def encode(self, indices: Indices, numel: int, out: Bytes, kernels: Kernels) -> int:
        """Write strictly increasing ``indices`` (``uint32[count]``) to ``out``; return the number of bytes."""

    @abstractmethod
    def decode(self, payload: Bytes, numel: int, indices: Indices, kernels: Kernels) -> None:
        """Fill ``indices`` (``uint32[count]``) from exactly ``payload``: strictly increasing, below ``numel``."""


class ValueCode(ABC):
    """Values as bits; the number of bytes depends on the count alone."""

    identifier: ClassVar[int]
    name: ClassVar[str]

    @abstractmethod
    def size(self, count: int) -> int:
        """Return the bytes of ``count`` values."""

    def given(self, coding: Coding) -> ValueCode:
        """Return the code for one frame, which encodes with this randomness and scale; most codes need neither: themselves."""
        return self

    @abstractmethod
    def encode(self, values: Floats, out: Bytes, decoded: Floats, kernels: Kernels) -> float:
        """Write finite ``values`` (``float32[count]``) to ``out`` (``uint8[size(count)]``, 4-byte aligned).

        ``decoded`` (``float32[count]``) becomes what every receiver will see. Returns the frame's scale, 1 where unused.
        """

    @abstractmethod
    def decode(self, payload: Bytes, scale: float, values: Floats, kernels: Kernels) -> None:
        """Fill ``values`` (``float32[count]``) from ``payload`` (``uint8[size(count)]``); all finite."""
