"""One codec = one index code + one value code, and the tables of both by their number on the wire."""

from __future__ import annotations

from dataclasses import dataclass

from sparse_ring.encode.base import Bytes, Floats, IndexCode, ValueCode
from sparse_ring.encode.bitpack import Bitpack
from sparse_ring.encode.every import EveryIndex
from sparse_ring.encode.float16 import Float16
from sparse_ring.encode.float32 import Float32
from sparse_ring.encode.golomb import Golomb
from sparse_ring.encode.sign import Sign
from sparse_ring.errors import ConfigError
from sparse_ring.kernels.base import Kernels
from sparse_ring.sparse import SparseGradient

INDEX_CODES: dict[int, IndexCode] = {code.identifier: code for code in (EveryIndex(), Golomb(), Bitpack())}
VALUE_CODES: dict[int, ValueCode] = {code.identifier: code for code in (Float32(), Float16(), Sign())}


@dataclass(frozen=True, slots=True)
class Encoded:
    """What ``Codec.encode`` wrote: ``value_bytes``, then ``index_bytes``; ``scale`` belongs to the values."""

    value_bytes: int
    index_bytes: int
    scale: float


@dataclass(frozen=True, slots=True)
class Codec:
    """How a sparse gradient is written: values first (they need the alignment), then indices."""

    index: IndexCode
    value: ValueCode

    @classmethod
    def named(cls, index: str, value: str) -> Codec:
        """Return the codec of two names, such as ``"golomb"`` and ``"float16"``; ConfigError lists the known ones."""
        indices = {code.name: code for code in INDEX_CODES.values() if not isinstance(code, EveryIndex)}
        values = {code.name: code for code in VALUE_CODES.values()}
        if index not in indices:
            raise ConfigError("indices", index, f"one of {', '.join(indices)}")
        if value not in values:
            raise ConfigError("values", value, f"one of {', '.join(values)}")
        return cls(indices[index], values[value])

    def bound(self, count: int, numel: int) -> int:
        """Return an upper bound of the bytes of ``count`` kept elements."""
        return self.value.size(count) + self.index.bound(count, numel)

    def encode(self, sparse: SparseGradient, out: Bytes, decoded: Floats, kernels: Kernels) -> Encoded:
        """Write ``sparse`` to ``out`` (at least ``bound`` bytes, 4-byte aligned) and what receivers see to ``decoded``."""
        value_bytes = self.value.size(sparse.count)
        scale = self.value.encode(sparse.values, out[:value_bytes], decoded, kernels)
        index_bytes = self.index.encode(sparse.indices, sparse.numel, out[value_bytes:], kernels)
        return Encoded(value_bytes, index_bytes, scale)
