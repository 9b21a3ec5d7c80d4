"""Codec = index code + value code: how kept elements become bytes."""

from sparse_ring.encode.auto import Auto
from sparse_ring.encode.base import IndexChoice, IndexCode, ValueCode
from sparse_ring.encode.bfloat16 import BFloat16
from sparse_ring.encode.bitmap import Bitmap
from sparse_ring.encode.bitpack import Bitpack
from sparse_ring.encode.block16 import Block16
from sparse_ring.encode.codec import (
    INDEX_CHOICES,
    INDEX_CODES,
    VALUE_CODES,
    VALUE_NAMES,
    WHOLE_NAMES,
    Codec,
    CodecChoice,
    Encoded,
)
from sparse_ring.encode.coder import AdaptiveCoder, Coder, FixedCoder, WarmupCoder, largest_magnitude, root_mean_square
from sparse_ring.encode.coding import Coding
from sparse_ring.encode.elias_fano import EliasFano
from sparse_ring.encode.every import EveryIndex
from sparse_ring.encode.float16 import Float16
from sparse_ring.encode.float32 import Float32
from sparse_ring.encode.golomb import Golomb
from sparse_ring.encode.interpolative import Interpolative
from sparse_ring.encode.levels import Int2, Int3, Int4, Int8, Levels
from sparse_ring.encode.nothing import Nothing
from sparse_ring.encode.sign import Sign
from sparse_ring.encode.whole import Block8, Four4, One1, Qsgd2, Qsgd4, Qsgd8, Quantized, Ternary, Tree8, Two2

__all__ = [
    "INDEX_CHOICES",
    "INDEX_CODES",
    "VALUE_CODES",
    "VALUE_NAMES",
    "WHOLE_NAMES",
    "AdaptiveCoder",
    "Auto",
    "BFloat16",
    "Bitmap",
    "Bitpack",
    "Block8",
    "Block16",
    "Codec",
    "CodecChoice",
    "Coder",
    "Coding",
    "EliasFano",
    "Encoded",
    "EveryIndex",
    "FixedCoder",
    "Float16",
    "Float32",
    "Four4",
    "Golomb",
    "IndexChoice",
    "IndexCode",
    "Int2",
    "Int3",
    "Int4",
    "Int8",
    "Interpolative",
    "Levels",
    "Nothing",
    "One1",
    "Qsgd2",
    "Qsgd4",
    "Qsgd8",
    "Quantized",
    "Sign",
    "Ternary",
    "Tree8",
    "Two2",
    "ValueCode",
    "WarmupCoder",
    "largest_magnitude",
    "root_mean_square",
]
