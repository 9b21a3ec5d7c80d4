"""Codes of whole gradients on the device: scales in ``cuda_units.py``, digits in ``cuda_digits.py``."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparse_ring.errors import MessageError
from sparse_ring.kernels import reasons
from sparse_ring.kernels.base import Bytes, Floats
from sparse_ring.kernels.cpu.values import need
from sparse_ring.kernels.cuda.arithmetic import rounded
from sparse_ring.kernels.cuda.digits import (
    DIGITS,
    NEAREST,
    SIDE,
    STOCHASTIC,
    TABLE,
    TREE,
    ZERO,
    read_digits,
    read_units,
    write_digits,
    write_words,
)
from sparse_ring.kernels.cuda.memory import bring_back, empty, give, launch, on_device, on_host, room_for, strides
from sparse_ring.kernels.cuda.mixed import WORD
from sparse_ring.kernels.cuda.scan import worst_of
from sparse_ring.kernels.cuda.units import head_of
from sparse_ring.kernels.cuda.values import need_payload
from sparse_ring.kernels.quantize import FOUR4, FOUR_TABLES, TREE8, Scheme, level_magnitudes, tree_steps

RULES = {"nearest": NEAREST, "stochastic": STOCHASTIC, "zero": ZERO, "side": SIDE}
WHOLE_FRAME = 63  # as block_bits: one unit for all values


class CudaQuantize:
    """See :class:`sparse_ring.kernels.base.Kernels`."""

    def quantize_encode(
        self, values: Floats, scheme: Scheme, scale: float, key: int, out: Bytes, decoded: Floats
    ) -> float:
        """Encode a whole gradient in few bits a value; returns the frame's scale."""
        length, given = len(values), rounded(scale)
        need("out", len(out), scheme.size(length))
        need("decoded", len(decoded), length)
        returned = 1.0 if scheme.scales else float(given)
        if length == 0:
            return returned
        on_values = on_device("values", values, np.float32)
        digits, seen = room_for("out", out, np.uint8), room_for("decoded", decoded, np.float32)
        units, table = on_device("scale", np.array([given]), np.float32), 0
        if scheme.scales:
            words, table = head_of(on_values, scheme)
            launch(write_words, strides(4 * len(words)), words, digits)
            units = words.view(np.float32)
        launch(
            write_digits,
            strides(scheme.size(length)),
            on_values,
            units,
            _block_bits(scheme),
            _rule(scheme),
            _bits(scheme),
            scheme.levels,
            *(on_device("levels", steps, np.float32) for steps in _steps(scheme, table)),
            on_device("levels", level_magnitudes(scheme, table), np.float32),
            key & WORD,
            key >> 32 & WORD,
            scheme.head_bytes(length),
            digits,
            seen,
        )
        bring_back(digits, out)
        bring_back(seen, decoded)
        return returned

    def quantize_decode(self, payload: Bytes, scheme: Scheme, scale: float, values: Floats) -> None:
        """Decode a whole gradient, distrusting payload and scale."""
        length, given, table = len(values), rounded(scale), 0
        need_payload(scheme.name, "bytes", len(payload), scheme.size(length), length)
        if not scheme.scales and (np.signbit(given) or not np.isfinite(given)):
            _refuse(scheme, reasons.LEVELS)
        if length == 0:
            return
        data, units, blocks = (
            on_device("payload", payload, np.uint8),
            on_device("scale", np.array([given]), np.float32),
            0,
        )
        if scheme.scales:
            units = empty(scheme.scales * scheme.blocks(length), np.float32)
            flags = empty(strides(len(units)), np.int64)
            launch(read_units, len(flags), data, units, flags)
            if worst_of(flags):
                _refuse(scheme, reasons.LEVELS)
        head = scheme.head_bytes(length)
        if scheme.words:
            table = int(np.frombuffer(on_host(payload[head - 4 : head]).tobytes(), "<u4")[0])
            if table >= len(FOUR_TABLES):
                _refuse(scheme, reasons.TABLE)
        magnitudes = on_device("levels", level_magnitudes(scheme, table), np.float32)
        blocks = strides(len(payload) - head)
        read, flags = empty(length, np.float32), empty(blocks, np.int64)
        block_bits, rule, bits = _block_bits(scheme), _rule(scheme), _bits(scheme)
        launch(read_digits, blocks, data, head, units, block_bits, rule, bits, magnitudes, read, flags)
        bad = worst_of(flags)
        if bad:
            _refuse(scheme, reasons.DIGITS if bad == DIGITS else reasons.PADDING)
        give("values", read, values)


def _refuse(scheme: Scheme, reason: str) -> None:
    raise MessageError(f"{scheme.name} values: {reason}")


def _block_bits(scheme: Scheme) -> int:
    return scheme.block.bit_length() - 1 if scheme.block else WHOLE_FRAME


def _bits(scheme: Scheme) -> int:
    """Bits of a digit; 0 in base 3."""
    return 0 if scheme.base == 3 else scheme.base.bit_length() - 1


def _rule(scheme: Scheme) -> int:
    return {TREE8: TREE, FOUR4: TABLE}.get(scheme, RULES[scheme.rounding])


def _steps(scheme: Scheme, table: int) -> tuple[Any, Any, Any]:
    """What a level follows from beside the rule: bounds, and what each decade of the tree multiplies by and adds."""
    none = np.zeros(0, np.float32)
    if scheme is TREE8:
        return tree_steps()
    if scheme is FOUR4:
        magnitudes = level_magnitudes(scheme, table)
        return (magnitudes[:-1] + magnitudes[1:]) / np.float32(2), none, none
    return none, none, none
