"""The contract of the codes for gradients that are sent whole: values around zero, element by element in few bits.

One family, whose members are a :class:`Scheme` each. A payload is the scales, for ``four4`` then a word, then the digits of the
values. No values take no bytes. Arithmetic is float32, each operation rounded once, except where float64 is said.

Blocks
    ``block`` consecutive values share a unit (0: the whole frame does). A unit is ``scales`` f32 of the payload, or where
    ``scales`` is 0 the frame's own scale, which the caller gives; everywhere else the frame's scale is 1 and is not looked at.
    Scales are finite and not negative, nor -0.
Digits
    A digit is in base ``base``: 2, 4, 16, 256 (sign in the highest bit, level below), or 3 (level, doubled where negative), and
    ``per_byte`` of them are a byte, so that all loops run over neighbours. A chunk is ``COLUMNS * per_byte`` values: its byte j
    holds the digits of values j, j + COLUMNS, j + 2 * COLUMNS, …, the first of them the lowest. Of the last, shorter chunk of
    m values ``ceil(m / per_byte)`` takes the place of COLUMNS; digits without a value are 0. Blocks are whole chunks.
Values
    ``scale * level_magnitudes(scheme)[level]``, with the sign of the value also where that is zero (in base 3: +0).
Levels
    ``x = |value| / scale`` (``/ 1`` where the scale is 0), and then
    nearest: linear levels ``rint(x * 127)``, ties to even; ``tree8`` see :func:`tree_level`; ``four4`` the number of midpoints
    between neighbours in the table (the zero included) at or below x;
    zero: ``trunc(min(x, 1))``;
    stochastic: ``y = min(x, 1) * L`` with L the highest level; ``trunc(y)``, and one more where the upper 24 bits of the random
    word are below ``(y - trunc(y)) * 2**24``: the mean over keys is the value.
Scales
    block8, tree8: the largest magnitude of the block. qsgd: ``sqrt`` of the sum of squares in float64, rounded to float32, at most
    the largest finite one. ternary, two2: given. four4: T, see :func:`four_unit`; the word after it is the number of the table.
    one1: mean of the values that are not negative, and mean magnitude of the negative ones (float64; 0 where there is none). Its
    digit is 1 where value < 0, and chooses between the two.
Sums
    float64 in the order of ``sum_magnitudes``, of a block by itself.
Random words
    ``mixed(mixed(index ^ low) + high)`` modulo 2**32 for the value at ``index`` of the frame and a key of two words, with
    ``mixed`` the finalizer of MurmurHash3 (Appleby, 2011): counter-based, so that any part can be computed by itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

COLUMNS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """One member of the family; the module's docstring says what the fields mean.

    number
        Its number on the wire and in the native module.
    rounding
        ``"nearest"``, ``"stochastic"``, ``"zero"`` (toward it), or ``"side"`` (of zero).
    levels
        The highest level.
    words
        u32 between scales and digits.
    """

    number: int
    name: str
    base: int
    block: int
    scales: int
    rounding: str
    levels: int
    words: int = 0

    @property
    def per_byte(self) -> int:
        """Values whose digits are one byte."""
        return {256: 1, 16: 2, 4: 4, 2: 8, 3: 5}[self.base]

    def blocks(self, count: int) -> int:
        """Return how many units ``count`` values have."""
        return -(-count // self.block) if self.block else min(count, 1)

    def head_bytes(self, count: int) -> int:
        """Return the bytes before the digits of ``count`` values."""
        return 4 * (self.scales * self.blocks(count) + self.words) if count else 0

    def size(self, count: int) -> int:
        """Return the bytes of ``count`` values."""
        return self.head_bytes(count) + -(-count // self.per_byte)


BLOCK8 = Scheme(number=8, name="block8", base=256, block=256, scales=1, rounding="nearest", levels=127)
TREE8 = Scheme(number=9, name="tree8", base=256, block=4096, scales=1, rounding="nearest", levels=127)
QSGD2 = Scheme(number=10, name="qsgd2", base=4, block=512, scales=1, rounding="stochastic", levels=1)
QSGD4 = Scheme(number=11, name="qsgd4", base=16, block=512, scales=1, rounding="stochastic", levels=7)
QSGD8 = Scheme(number=12, name="qsgd8", base=256, block=512, scales=1, rounding="stochastic", levels=127)
TERNARY = Scheme(number=13, name="ternary", base=3, block=0, scales=0, rounding="stochastic", levels=1)
FOUR4 = Scheme(number=14, name="four4", base=16, block=0, scales=1, rounding="nearest", levels=7, words=1)
TWO2 = Scheme(number=15, name="two2", base=4, block=0, scales=0, rounding="zero", levels=1)
ONE1 = Scheme(number=16, name="one1", base=2, block=4096, scales=2, rounding="side", levels=0)
SCHEMES = (BLOCK8, TREE8, QSGD2, QSGD4, QSGD8, TERNARY, FOUR4, TWO2, ONE1)

# four4: magnitudes in units of T / 1024, geometric with ratio 0.72, 0.66 and 0.54.
FOUR_TABLES = (
    (0, 143, 198, 275, 382, 531, 737, 1024),
    (0, 85, 128, 194, 294, 446, 676, 1024),
    (0, 25, 47, 87, 161, 299, 553, 1024),
)
# From which n * sum of squares / (sum of magnitudes)**2 on a table is taken, n counting what is not zero, and T in units of
# the root mean square. Normal values have 1.57, those of a Laplace distribution 2.0, of Student's with 3 degrees 2.47.
FOUR_FROM = (0.0, 1.75, 2.25)
FOUR_REACH = (2.625, 4.375, 16.0)

_DECADES = np.arange(7)


def level_magnitudes(scheme: Scheme, table: int = 0) -> NDArray[np.float32]:
    """Return the magnitudes of the levels for a unit scale, ``float32[levels + 1]``; ``table`` is ``four4``'s."""
    if scheme is TREE8:
        return _tree_magnitudes()
    if scheme is FOUR4:
        return (np.array(FOUR_TABLES[table]) / 1024).astype(np.float32)
    step = np.float32(1) / np.float32(max(scheme.levels, 1))
    magnitudes: NDArray[np.float32] = np.arange(scheme.levels + 1, dtype=np.float32) * step
    return magnitudes


def _tree_magnitudes() -> NDArray[np.float32]:
    """The dynamic tree: level 0 is zero; of the others the highest bit set, f, is the decade, the f bits below it the part.

    Decade f is (10**(f - 7), 10**(f - 6)] in 2**f equal parts, each represented by its upper end, so that 1 is a level.
    """
    found = [0.0]
    for f in range(7):
        found += [(1 + 9 * (part + 1) / 2**f) / 10 ** (7 - f) for part in range(2**f)]
    return np.array(found).astype(np.float32)


def tree_steps() -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """Return the borders of ``tree8``'s decades, ``float32[6]``, and each decade's factor and offset, ``float32[7]``.

    A border is the midpoint between the end of a decade and the first level of the next. All are computed in float64 and rounded.
    """
    power, parts = 10.0 ** (7 - _DECADES), 2.0**_DECADES
    borders = ((1 + 4.5 / parts) / power).astype(np.float32)[1:]
    factors, offsets = (power * parts / 9).astype(np.float32), (8 * parts / 9 - 1).astype(np.float32)
    factors[0], offsets[0] = 1e6, 0  # below the lowest level is zero, not another decade
    return borders, factors, offsets


def tree_level(x: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Return the level of the dynamic tree that is nearest to each ``x`` in [0, 1].

    The decade f is how many of the borders are at or below x; the level is ``rint(x * factor[f] + offset[f])``, at most the
    last of the decade.
    """
    borders, factors, offsets = tree_steps()
    decade = np.searchsorted(borders, x, side="right")
    levels = np.rint(x * factors[decade] + offsets[decade])
    nearest: NDArray[np.uint8] = np.minimum(levels, 2 ** (decade + 1) - 1).astype(np.uint8)
    return nearest


def four_unit(count: int, total: float, squares: float, largest: np.float32) -> tuple[int, np.float32]:
    """Return ``four4``'s table and T for ``count`` magnitudes above zero with these sums (float64) and largest one.

    T is at most the largest magnitude; nothing above zero gives table 0 and T 0.
    """
    if not count:
        return 0, np.float32(0)
    spread = count * squares
    table = sum(spread >= least * (total * total) for least in FOUR_FROM[1:])
    reach = min(FOUR_REACH[table] * math.sqrt(squares / count), float(largest))
    return table, np.float32(reach)


def random_words(count: int, key: int) -> NDArray[np.uint32]:
    """Return the random words of the values 0, 1, …, ``count - 1`` under a key of 64 bits (the low word first)."""
    low, high = np.uint32(key & 0xFFFFFFFF), np.uint32(key >> 32 & 0xFFFFFFFF)
    return _mixed(_mixed(np.arange(count, dtype=np.uint32) ^ low) + high)


def _mixed(x: NDArray[np.uint32]) -> NDArray[np.uint32]:
    x = x ^ (x >> np.uint32(16))
    x = x * np.uint32(0x85EBCA6B)
    x = x ^ (x >> np.uint32(13))
    x = x * np.uint32(0xC2B2AE35)
    x = x ^ (x >> np.uint32(16))
    return x
