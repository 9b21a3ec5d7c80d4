"""The random words of the stochastic codes, which all implementations share."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparse_ring.kernels.quantize import random_words


def test_words_are_two_rounds_of_the_published_finalizer() -> None:
    # 0x514E28B7 is what MurmurHash3 makes of 1; the high word of the key takes it away again, but for a 1.
    key = (1 - 0x514E28B7) % 2**32 << 32
    assert int(random_words(2, key)[1]) == 0x514E28B7
    assert int(random_words(1, key | 1)[0]) == 0x514E28B7


def test_a_frame_may_be_drawn_in_parts() -> None:
    assert random_words(1000, 77)[:10].tolist() == random_words(10, 77).tolist()


def test_words_look_random() -> None:
    """Each bit even, no bit following another, neither along the values of a frame nor across keys that differ little."""
    keys = [0, 1, 2, 3, 1 << 32, 2 << 32, 1 << 63]
    words = np.array([random_words(1 << 15, key) for key in keys])
    bits: Any = np.unpackbits(words.view(np.uint8), axis=1).reshape(len(keys), -1, 32).astype(np.float64) - 0.5
    limit = 6 / np.sqrt(1 << 15)
    assert np.all(np.abs(2 * bits.mean(axis=1)) < limit)
    for lag in (1, 2, 64, 512):
        assert np.all(np.abs(4 * (bits[:, lag:] * bits[:, :-lag]).mean(axis=1)) < limit)
    for one in range(len(keys)):
        for other in range(one):
            assert np.all(np.abs(4 * (bits[one] * bits[other]).mean(axis=0)) < limit)
