"""MurmurHash3's last step on the device: what random words and renewed columns are made with."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparse_ring.kernels.cuda.warp import device

WORD = 0xFFFFFFFF
HALF_WORD = 0xFFFF


@device
def times(word: Any, factor: Any) -> Any:
    """Return the product modulo 2**32 of two numbers below 2**32, without passing 2**63 on the way."""
    low, high = word * (factor & HALF_WORD), (word * (factor >> 16)) & HALF_WORD
    return (low + (high << 16)) & WORD


@device
def mixed(word: Any) -> Any:
    """Return the word (int64 below 2**32) through MurmurHash3's last step (Appleby)."""
    word ^= word >> 16
    word = times(word, np.int64(0x85EBCA6B))
    word ^= word >> 13
    word = times(word, np.int64(0xC2B2AE35))
    return word ^ (word >> 16)


@device
def random_word(i: Any, low: Any, high: Any) -> Any:
    """Return the random word of the value at ``i`` under a key of two words; see ``quantize.py``."""
    return mixed((mixed((i & WORD) ^ low) + high) & WORD)
