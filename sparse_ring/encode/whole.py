"""Codes of gradients that are sent whole: each value by itself becomes one of a few levels around zero.

Where ``levels.py`` codes the tail that a selection leaves, these code all of a gradient. They differ in the number of levels, in
what the levels are measured by and in how a value between two of them is rounded; ``kernels/quantize.py`` has the formulas,
``docs/algorithms.md`` the sources. Stochastic ones (qsgd, ternary) are unbiased and need no residual; the others lose what error
feedback should keep. They are in ``WHOLE_NAMES``, not among the codes of kept elements.

    code = WHOLE_NAMES["qsgd4"].given(Coding(seed=rank, step=step, parameter=number))
    scale = code.encode(values, out, decoded, kernels)
"""

from __future__ import annotations

from typing import ClassVar

from sparse_ring.encode.base import Bytes, Floats, ValueCode
from sparse_ring.encode.coding import Coding
from sparse_ring.errors import ConfigError
from sparse_ring.kernels import quantize
from sparse_ring.kernels.base import Kernels
from sparse_ring.kernels.quantize import Scheme


class Quantized(ValueCode):
    """One scheme; encodes by itself unless it is stochastic or wants a scale: then ``given`` first."""

    scheme: ClassVar[Scheme]

    def size(self, count: int) -> int:
        """Return the bytes of scales and digits; 0 for no values."""
        return self.scheme.size(count)

    def encode(self, values: Floats, out: Bytes, decoded: Floats, kernels: Kernels) -> float:
        """See :meth:`ValueCode.encode`; the scale is 1."""
        return kernels.quantize_encode(values, self.scheme, 1.0, 0, out, decoded)

    def decode(self, payload: Bytes, scale: float, values: Floats, kernels: Kernels) -> None:
        """See :meth:`ValueCode.decode`."""
        kernels.quantize_decode(payload, self.scheme, scale, values)


class QuantizedAsTold(Quantized):
    """A scheme that needs a key or a scale for each frame."""

    def __init__(self, coding: Coding | None = None) -> None:
        self._coding = coding

    def given(self, coding: Coding) -> ValueCode:
        """See :meth:`ValueCode.given`. Raises ConfigError where this code needs a scale and there is none."""
        if self.scheme.scales == 0 and coding.scale is None:
            raise ConfigError("scale", None, f"a number: {self.name} does not measure it")
        return type(self)(coding)

    def encode(self, values: Floats, out: Bytes, decoded: Floats, kernels: Kernels) -> float:
        """See :meth:`ValueCode.encode`; the scale is the given one, else 1. Raises ValueError where nothing was given."""
        if self._coding is None:
            raise ValueError(
                f"{self.name} needs to be told about the frame: use what {self.name}.given(Coding(...)) returns."
            )
        scale = abs(self._coding.scale or 0.0)
        return kernels.quantize_encode(values, self.scheme, scale, self._coding.key, out, decoded)


class Block8(Quantized):
    """127 even levels up to the largest magnitude of each 256 values; 8.125 bits a value."""

    scheme = quantize.BLOCK8
    identifier, name = scheme.number, scheme.name


class Tree8(Quantized):
    """Dynamic tree (Dettmers, ICLR 2016): seven decades below the largest of each 4096 values; 8.008 bits a value.

    Blocks, not the whole frame, so that an outlier spoils 4,096 values at most, and a block is still in the cache when it is coded.
    """

    scheme = quantize.TREE8
    identifier, name = scheme.number, scheme.name


class Qsgd2(QuantizedAsTold):
    """QSGD (Alistarh et al., NeurIPS 2017) with 1 level below the norm of each 512 values; 2.06 bits a value."""

    scheme = quantize.QSGD2
    identifier, name = scheme.number, scheme.name


class Qsgd4(QuantizedAsTold):
    """QSGD with 7 levels; 4.06 bits a value."""

    scheme = quantize.QSGD4
    identifier, name = scheme.number, scheme.name


class Qsgd8(QuantizedAsTold):
    """QSGD with 127 levels; 8.06 bits a value."""

    scheme = quantize.QSGD8
    identifier, name = scheme.number, scheme.name


class Ternary(QuantizedAsTold):
    """TernGrad (Wen et al., NeurIPS 2017): zero or a given scale, stochastic; 1.6 bits a value. Larger magnitudes are clipped."""

    scheme = quantize.TERNARY
    identifier, name = scheme.number, scheme.name


class Four4(Quantized):
    """Zero and 7 geometric levels up to T, of three tables the one that suits the frame's distribution; 4 bits a value."""

    scheme = quantize.FOUR4
    identifier, name = scheme.number, scheme.name


class Two2(QuantizedAsTold):
    """Zero, or a given threshold where a magnitude reaches it; 2 bits a value. The rest is error feedback's."""

    scheme = quantize.TWO2
    identifier, name = scheme.number, scheme.name


class One1(Quantized):
    """The side of zero (Seide et al., Interspeech 2014), each with its mean over 4096 values; 1.016 bits a value.

    Blocks stand in for the paper's columns, which a flat gradient does not have.
    """

    scheme = quantize.ONE1
    identifier, name = scheme.number, scheme.name
