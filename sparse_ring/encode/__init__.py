"""Codec = index code + value code: how kept elements become bytes."""

from sparse_ring.encode.base import IndexCode, ValueCode
from sparse_ring.encode.bitpack import Bitpack
from sparse_ring.encode.codec import INDEX_CODES, VALUE_CODES, Codec, Encoded
from sparse_ring.encode.every import EveryIndex
from sparse_ring.encode.float16 import Float16
from sparse_ring.encode.float32 import Float32
from sparse_ring.encode.golomb import Golomb
from sparse_ring.encode.sign import Sign

__all__ = [
    "INDEX_CODES",
    "VALUE_CODES",
    "Bitpack",
    "Codec",
    "Encoded",
    "EveryIndex",
    "Float16",
    "Float32",
    "Golomb",
    "IndexCode",
    "Sign",
    "ValueCode",
]
