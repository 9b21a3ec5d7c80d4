"""Values as a sign and a level: after a selection by magnitude only what exceeds the smallest magnitude has to be coded.

What is kept of a gradient is the tail of its distribution, cut at the threshold: magnitudes lie between the smallest kept one
and the largest, and the more of them the closer to the smallest. So the frame has the smallest magnitude and a scale, and each
value a level of the excess in units of that scale. With few levels these are the best ones for an excess that decreases
exponentially (Lloyd, IEEE Trans. Inf. Theory 1982; Max, IRE Trans. Inf. Theory 1960) and the scale is the mean excess, so that
a single large value cannot spoil the others; what exceeds the highest level stays in the residual. With 128 levels they reach up
to the largest value, and lie denser where most values are. ``docs/results/codes.md`` compares the errors.
"""

from __future__ import annotations

from sparse_ring.encode.base import Bytes, Floats, ValueCode
from sparse_ring.kernels.base import Kernels, levels_size


class Levels(ValueCode):
    """``bits`` bits a value, and 32 a frame; one class for four codes, which differ by that number and the table of levels."""

    bits: int

    def size(self, count: int) -> int:
        """Return ``4 + ceil(count * bits / 8)``; 0 for no values."""
        return levels_size(count, self.bits)

    def encode(self, values: Floats, out: Bytes, decoded: Floats, kernels: Kernels) -> float:
        """See :meth:`ValueCode.encode`; the scale is the mean excess, or for 8 bits the largest."""
        return kernels.levels_encode(values, self.bits, out, decoded)

    def decode(self, payload: Bytes, scale: float, values: Floats, kernels: Kernels) -> None:
        """See :meth:`ValueCode.decode`."""
        kernels.levels_decode(payload, self.bits, scale, values)


class Int8(Levels):
    """128 levels, the highest near the largest value."""

    identifier = 4
    name = "int8"
    bits = 8


class Int4(Levels):
    """8 levels, up to 6.3 times the mean excess."""

    identifier = 5
    name = "int4"
    bits = 4


class Int3(Levels):
    """4 levels, up to 4.4 times the mean excess."""

    identifier = 6
    name = "int3"
    bits = 3


class Int2(Levels):
    """2 levels, at 0.6 and 2.6 times the mean excess."""

    identifier = 7
    name = "int2"
    bits = 2
