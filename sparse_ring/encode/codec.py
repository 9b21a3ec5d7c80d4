"""One codec = one index code + one value code, and the tables of both by their number on the wire."""

from __future__ import annotations

from dataclasses import dataclass

from sparse_ring.encode.auto import Auto
from sparse_ring.encode.base import Bytes, Floats, IndexChoice, IndexCode, ValueCode
from sparse_ring.encode.bfloat16 import BFloat16
from sparse_ring.encode.bitmap import Bitmap
from sparse_ring.encode.bitpack import Bitpack
from sparse_ring.encode.block16 import Block16
from sparse_ring.encode.elias_fano import EliasFano
from sparse_ring.encode.every import EveryIndex
from sparse_ring.encode.float16 import Float16
from sparse_ring.encode.float32 import Float32
from sparse_ring.encode.golomb import Golomb
from sparse_ring.encode.interpolative import Interpolative
from sparse_ring.encode.levels import Int2, Int3, Int4, Int8
from sparse_ring.encode.nothing import Nothing
from sparse_ring.encode.sign import Sign
from sparse_ring.encode.whole import Block8, Four4, One1, Qsgd2, Qsgd4, Qsgd8, Ternary, Tree8, Two2
from sparse_ring.errors import ConfigError
from sparse_ring.kernels.base import Kernels
from sparse_ring.sparse import SparseGradient

_POSITIONS = (Golomb(), Bitpack(), Bitmap(), EliasFano(), Block16(), Interpolative())
_VALUES = (Float32(), Float16(), Sign(), BFloat16(), Int8(), Int4(), Int3(), Int2())
_WHOLE = (Block8(), Tree8(), Qsgd2(), Qsgd4(), Qsgd8(), Ternary(), Four4(), Two2(), One1())

INDEX_CODES: dict[int, IndexCode] = {code.identifier: code for code in (EveryIndex(), *_POSITIONS)}
VALUE_CODES: dict[int, ValueCode] = {code.identifier: code for code in (*_VALUES, *_WHOLE, Nothing())}

# By the names in recipes. The codes of dense frames and of frames without values are not among them.
INDEX_CHOICES: dict[str, IndexChoice] = {code.name: code for code in (*_POSITIONS, Auto(_POSITIONS))}
VALUE_NAMES: dict[str, ValueCode] = {code.name: code for code in _VALUES}
# For gradients that are sent whole, of which values around zero are most: kept elements have none.
WHOLE_NAMES: dict[str, ValueCode] = {code.name: code for code in _WHOLE}


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
        """Return the codec of two codes' names, such as ``"golomb"`` and ``"float16"``; ConfigError lists the known ones."""
        chosen = CodecChoice.named(index, value)
        if not isinstance(chosen.index, IndexCode):
            codes = [name for name, code in INDEX_CHOICES.items() if isinstance(code, IndexCode)]
            raise ConfigError("indices", index, f"one of {', '.join(codes)}")
        return cls(chosen.index, chosen.value)

    def bound(self, count: int, numel: int) -> int:
        """Return an upper bound of the bytes of ``count`` kept elements."""
        return self.value.size(count) + self.index.bound(count, numel)

    def encode(self, sparse: SparseGradient, out: Bytes, decoded: Floats, kernels: Kernels) -> Encoded:
        """Write ``sparse`` to ``out`` (at least ``bound`` bytes, 4-byte aligned) and what receivers see to ``decoded``."""
        value_bytes = self.value.size(sparse.count)
        scale = self.value.encode(sparse.values, out[:value_bytes], decoded, kernels)
        index_bytes = self.index.encode(sparse.indices, sparse.numel, out[value_bytes:], kernels)
        return Encoded(value_bytes, index_bytes, scale)


@dataclass(frozen=True, slots=True)
class CodecChoice:
    """What a recipe asks for: a value code and an index code, or one chosen for each frame."""

    index: IndexChoice
    value: ValueCode

    @classmethod
    def named(cls, index: str, value: str) -> CodecChoice:
        """Return the choice of two names, such as ``"auto"`` and ``"float16"``; ConfigError lists the known ones."""
        if index not in INDEX_CHOICES:
            raise ConfigError("indices", index, f"one of {', '.join(INDEX_CHOICES)}")
        if value not in VALUE_NAMES:
            raise ConfigError("values", value, f"one of {', '.join(VALUE_NAMES)}")
        return cls(INDEX_CHOICES[index], VALUE_NAMES[value])

    def most(self, count: int, numel: int) -> int:
        """Return an upper bound of the bytes of ``count`` kept elements, or fewer."""
        return self.value.size(count) + self.index.most(count, numel)

    def choose(self, sparse: SparseGradient, kernels: Kernels) -> Codec:
        """Return the codec for one frame."""
        return Codec(self.index.choose(sparse.indices, sparse.numel, kernels), self.value)
