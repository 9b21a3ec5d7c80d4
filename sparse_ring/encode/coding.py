"""What a value code of whole gradients is told for one frame: where its random numbers come from, and a scale."""

from __future__ import annotations

from dataclasses import dataclass

from sparse_ring.errors import ConfigError

_WORD = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Coding:
    """Given to :meth:`~sparse_ring.encode.ValueCode.given`; codes take from it what they need.

    seed, step, parameter
        Integers that name the random numbers of one frame: the same three give the same bits. Ranks need different seeds for
        errors that average out between them.
    scale
        Unit of codes that don't measure one (``ternary``, ``two2``), at least 0 and a finite float32; others ignore it.
    """

    seed: int = 0
    step: int = 0
    parameter: int = 0
    scale: float | None = None

    def __post_init__(self) -> None:
        if self.scale is not None and not 0.0 <= self.scale <= 3.4028234663852886e38:
            raise ConfigError("scale", self.scale, "a finite float32 of at least 0")

    @property
    def key(self) -> int:
        """64 bits from seed, step and parameter (the finalizer of SplitMix64 over each: Steele et al., OOPSLA 2014)."""
        mixed = 0
        for number in (self.seed, self.step, self.parameter):
            mixed = (mixed + int(number) + 0x9E3779B97F4A7C15) & _WORD
            mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _WORD
            mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _WORD
            mixed ^= mixed >> 31
        return mixed
