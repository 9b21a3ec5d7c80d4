"""How the elements of a dense array travel: in their own dtype, or rounded to a narrower one.

A ring keeps partial results in wire elements only, so the last owner of a coordinate holds exactly what it sends on,
and all ranks end with the same bits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sparse_ring.kernels.base import Kernels

REDUCTIONS = {"Sum": np.add, "Min": np.minimum, "Max": np.maximum}


class WireFormat(ABC):
    """Turns parts of an array into wire elements and back. All arrays are 1-D, contiguous and of equal length."""

    name: str

    @abstractmethod
    def dtype(self, array: np.dtype[Any]) -> np.dtype[Any]:
        """Return the wire's dtype for arrays of dtype ``array``. Raises ValueError where it cannot carry them."""

    @abstractmethod
    def pack(self, part: NDArray[Any], wire: NDArray[Any]) -> None:
        """Write ``part`` as wire elements."""

    @abstractmethod
    def accumulate(self, part: NDArray[Any], wire: NDArray[Any], op: str) -> None:
        """``wire = round(wire op part)``, in place; ``op`` is ``"Sum"``, ``"Min"`` or ``"Max"``."""

    @abstractmethod
    def unpack(self, wire: NDArray[Any], part: NDArray[Any]) -> None:
        """Write wire elements into ``part``."""


class NativeWire(WireFormat):
    """Elements travel as they are. NumPy adds float16 in float32 and rounds each sum, as the ring needs it."""

    name = "native"

    def dtype(self, array: np.dtype[Any]) -> np.dtype[Any]:
        """Any dtype travels as itself."""
        return array

    def pack(self, part: NDArray[Any], wire: NDArray[Any]) -> None:
        """Copy."""
        np.copyto(wire, part)

    def accumulate(self, part: NDArray[Any], wire: NDArray[Any], op: str) -> None:
        """Reduce in the arrays' dtype; integers wrap around."""
        REDUCTIONS[op](wire, part, out=wire)

    def unpack(self, wire: NDArray[Any], part: NDArray[Any]) -> None:
        """Copy."""
        np.copyto(part, wire)


class Float16Wire(WireFormat):
    """IEEE half precision travels (bits in ``uint16``); partial results are float32, rounded to nearest even at each hop.

    Carries ``float32``. What exceeds 65,504 becomes infinite, as it does in torch's own float16 hook.
    """

    name = "float16"

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels
        self._sum = np.empty(0, dtype=np.float32)

    def dtype(self, array: np.dtype[Any]) -> np.dtype[Any]:
        """``uint16`` for float32 arrays; ValueError for others."""
        if array != np.float32:
            raise ValueError(f"a float16 wire carries float32, not {array}; use the native wire.")
        return np.dtype(np.uint16)

    def pack(self, part: NDArray[Any], wire: NDArray[Any]) -> None:
        """Round."""
        self._kernels.float32_to_float16(part, wire)

    def accumulate(self, part: NDArray[Any], wire: NDArray[Any], op: str) -> None:
        """Widen, reduce in float32, round."""
        if len(self._sum) < len(wire):
            self._sum = np.empty(len(wire), np.float32)
        total = self._sum[: len(wire)]
        self._kernels.float16_to_float32(wire, total)
        REDUCTIONS[op](total, part, out=total)
        self._kernels.float32_to_float16(total, wire)

    def unpack(self, wire: NDArray[Any], part: NDArray[Any]) -> None:
        """Widen."""
        self._kernels.float16_to_float32(wire, part)


class BFloat16Wire(WireFormat):
    """bfloat16 travels (bits in ``uint16``); partial results are float32, rounded to nearest even at each hop.

    Carries ``float32`` arrays, which end as rounded float32, and ``uint16`` arrays that hold bfloat16.
    """

    name = "bfloat16"

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels
        self._own = np.empty(0, dtype=np.float32)
        self._sum = np.empty(0, dtype=np.float32)

    def dtype(self, array: np.dtype[Any]) -> np.dtype[Any]:
        """``uint16`` for float32 and uint16 arrays; ValueError for others."""
        if array not in (np.float32, np.uint16):
            raise ValueError(
                f"a bfloat16 wire carries float32 or bfloat16 (as uint16), not {array}; use the native wire."
            )
        return np.dtype(np.uint16)

    def pack(self, part: NDArray[Any], wire: NDArray[Any]) -> None:
        """Round float32, copy bfloat16."""
        self.narrow(part, wire)

    def accumulate(self, part: NDArray[Any], wire: NDArray[Any], op: str) -> None:
        """Widen, reduce in float32, round."""
        if len(self._sum) < len(wire):
            self._own, self._sum = np.empty(len(wire), np.float32), np.empty(len(wire), np.float32)
        own, total = self._own[: len(wire)], self._sum[: len(wire)]
        self._kernels.bfloat16_to_float32(wire, total)
        if part.dtype == np.float32:
            own = part
        else:
            self._kernels.bfloat16_to_float32(part, own)
        REDUCTIONS[op](total, own, out=total)
        self._kernels.float32_to_bfloat16(total, wire)

    def unpack(self, wire: NDArray[Any], part: NDArray[Any]) -> None:
        """Widen into float32, copy into bfloat16."""
        if part.dtype == np.float32:
            self._kernels.bfloat16_to_float32(wire, part)
        else:
            np.copyto(part, wire)

    def widen(self, array: NDArray[np.uint16]) -> NDArray[np.float32]:
        """Return bfloat16 bits as a new float32 array."""
        wide = np.empty(len(array), dtype=np.float32)
        self._kernels.bfloat16_to_float32(array, wide)
        return wide

    def narrow(self, array: NDArray[Any], out: NDArray[np.uint16]) -> None:
        """Write float32 rounded to bfloat16 bits, or bfloat16 bits as they are, into ``out``."""
        if array.dtype == np.float32:
            self._kernels.float32_to_bfloat16(array, out)
        else:
            np.copyto(out, array)
