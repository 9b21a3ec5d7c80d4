"""Which value code a parameter's frame gets, step by step: the part of a quantising recipe that may keep state.

A frame names its code, so ranks may choose differently; only ``most`` must be the same on all of them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from sparse_ring.encode.base import Floats, ValueCode
from sparse_ring.encode.coding import Coding
from sparse_ring.encode.float32 import Float32
from sparse_ring.kernels.base import Kernels

LARGEST = float(np.finfo(np.float32).max)


class Coder(ABC):
    """Chooses the code of one parameter; one instance a parameter and rank.

    shares_unit
        Whether all ranks code with the largest of their units, which costs a small exchange before the frames travel.
    """

    shares_unit: bool = False

    def unit(self, values: Floats) -> float | None:
        """Return the unit that codes measure these values by, finite and at least 0; None where they measure themselves."""
        return None

    @abstractmethod
    def choose(self, values: Floats, coding: Coding, kernels: Kernels) -> ValueCode:
        """Return the code for these finite values (all of a parameter's, or of a part of it), as ``coding`` tells it."""

    @abstractmethod
    def most(self, count: int, step: int) -> int:
        """Return an upper bound of the bytes of ``count`` values at an optimizer step; the same on all ranks."""

    def state_dict(self) -> dict[str, int]:
        """Return what it has chosen, as numbers by name."""
        return {}

    def load_state_dict(self, state: Mapping[str, int]) -> None:  # noqa: B027
        """Take over what ``state_dict`` returned; an empty mapping starts afresh."""


def largest_magnitude(values: Floats) -> float:
    """Return the largest magnitude; 0 for no values."""
    return float(np.abs(values).max(initial=0.0))


def _square_sum(values: Floats) -> float:
    # In float64: squares of finite float32 may exceed float32.
    return float(np.square(values, dtype=np.float64).sum())


def root_mean_square(values: Floats) -> float:
    """Return the root of the mean square; 0 for no values."""
    return min(math.sqrt(_square_sum(values) / max(len(values), 1)), LARGEST)


class FixedCoder(Coder):
    """Always the same code.

    unit
        Computes its unit from the values; None where the code measures them itself.
    """

    def __init__(
        self, code: ValueCode, unit: Callable[[Floats], float] | None = None, *, shares_unit: bool = False
    ) -> None:
        self._code, self._unit, self.shares_unit = code, unit, shares_unit

    def unit(self, values: Floats) -> float | None:
        """See :meth:`Coder.unit`."""
        return None if self._unit is None else self._unit(values)

    def choose(self, values: Floats, coding: Coding, kernels: Kernels) -> ValueCode:
        """See :meth:`Coder.choose`."""
        return self._code.given(coding)

    def most(self, count: int, step: int) -> int:
        """See :meth:`Coder.most`."""
        return self._code.size(count)


class WarmupCoder(Coder):
    """Exact for some steps, then as another coder has it."""

    def __init__(self, after: Coder, steps: int) -> None:
        self._after, self._steps, self.shares_unit = after, steps, after.shares_unit

    def unit(self, values: Floats) -> float | None:
        """See :meth:`Coder.unit`."""
        return self._after.unit(values)

    def choose(self, values: Floats, coding: Coding, kernels: Kernels) -> ValueCode:
        """See :meth:`Coder.choose`."""
        return Float32() if coding.step < self._steps else self._after.choose(values, coding, kernels)

    def most(self, count: int, step: int) -> int:
        """See :meth:`Coder.most`."""
        return 4 * count if step < self._steps else self._after.most(count, step)

    def state_dict(self) -> dict[str, int]:
        """See :meth:`Coder.state_dict`."""
        return self._after.state_dict()

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """See :meth:`Coder.load_state_dict`."""
        self._after.load_state_dict(state)


class AdaptiveCoder(Coder):
    """The narrowest of several codes whose error is small enough, chosen again every ``period`` steps.

    codes
        From narrow to wide; the last is taken where none is good enough.
    target
        The largest relative error: Euclidean norm of what coding loses, in units of that of the values.
    """

    def __init__(
        self, codes: Sequence[ValueCode], target: float, period: int, unit: Callable[[Floats], float] | None = None
    ) -> None:
        self._codes, self._target, self._period, self._unit = tuple(codes), target, period, unit
        self._chosen: ValueCode | None = None
        self._until = 0

    def unit(self, values: Floats) -> float | None:
        """See :meth:`Coder.unit`."""
        return None if self._unit is None else self._unit(values)

    def choose(self, values: Floats, coding: Coding, kernels: Kernels) -> ValueCode:
        """See :meth:`Coder.choose`."""
        if self._chosen is None or coding.step >= self._until:
            self._until = coding.step + self._period
            self._chosen = self._measured(values, coding, kernels)
        return self._chosen.given(coding)

    def most(self, count: int, step: int) -> int:
        """See :meth:`Coder.most`."""
        return max(code.size(count) for code in self._codes)

    def state_dict(self) -> dict[str, int]:
        """Return the code's number and until which step it holds, once one is chosen."""
        return {} if self._chosen is None else {"code": self._chosen.identifier, "code_until": self._until}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """See :meth:`Coder.load_state_dict`."""
        known = {code.identifier: code for code in self._codes}
        self._chosen, self._until = known.get(state.get("code", -1)), state.get("code_until", 0)

    def _measured(self, values: Floats, coding: Coding, kernels: Kernels) -> ValueCode:
        allowed = self._target**2 * _square_sum(values)
        decoded = np.empty_like(values)
        for code in self._codes[:-1]:
            out = np.empty(code.size(len(values)) + 3, dtype=np.uint8)[: code.size(len(values))]
            code.given(coding).encode(values, out, decoded, kernels)
            if _square_sum(values - decoded) <= allowed:
                return code
        return self._codes[-1]
