"""The allreduce operation: scaling and averaging around a dense ring, for every dtype."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from sparse_ring.engine.link import Link
from sparse_ring.engine.operation import Agreed, Operation, Request
from sparse_ring.errors import MessageError
from sparse_ring.exchange.exchanges import Exchanges
from sparse_ring.exchange.ring import DenseRing
from sparse_ring.observe.timeline import Track, now

OPS = ("Average", "Sum", "Min", "Max")


@dataclass(frozen=True, eq=False)
class _Reduction:
    """What all allreduces of equal settings share."""

    ring: DenseRing
    travels: np.dtype[Any]
    wire_item_bytes: int
    dtype: str
    detail: str
    fusion_key: tuple[str, str, str]

    @classmethod
    def of(
        cls, op: str, wire: str, prescale: float, postscale: float, gradient: bool, dtype: str | None,
        array: NDArray[Any], exchanges: Exchanges,
    ) -> _Reduction:  # fmt: skip
        half = dtype == "bfloat16"
        ring = exchanges.dense("bfloat16" if half else wire)
        travels = array.dtype
        if op == "Average" and travels.kind in "iu" and travels.itemsize < 8 and not half:
            # Integers travel wider: the sum of ranks may exceed the dtype though its average does not.
            travels = np.dtype(np.int32 if travels.itemsize < 4 else np.int64)
        name = dtype or array.dtype.name
        detail = f"op={op}" + (f", wire={wire}" if wire != "native" else "")
        detail += "".join(f", {key}={x}" for key, x in (("prescale", prescale), ("postscale", postscale)) if x != 1.0)
        detail += ", gradient" if gradient else ""
        return cls(ring, travels, ring.wire.dtype(travels).itemsize, name, detail, ("allreduce", name, detail))


class Allreduce(Operation):
    """Reduce ``array`` over all ranks, in place; the handle's result is ``array``.

    array
        C-contiguous NumPy array of any shape: float16, float32, float64, any integer, bool, or bfloat16 bits in
        ``uint16`` (then ``dtype`` must say so). Belongs to the engine until the handle is done.
    op
        ``"Average"``, ``"Sum"``, ``"Min"`` or ``"Max"``. An integer Average is exact up to int32 and truncates toward
        zero; other integer sums wrap around. A float16 Average is scaled down by a power of two before it travels, so
        that it cannot overflow.
    exchanges
        The session's; the dense ring is taken from it.
    wire
        ``"native"``, or ``"bfloat16"`` or ``"float16"`` for a float32 array that shall travel rounded. Operations of one wire share
        buckets.
    prescale, postscale
        Factors before and after the reduction, applied in float32 (float64 for float64 and integers, which are
        truncated).
    absent
        This rank has nothing to give (see :class:`~sparse_ring.engine.operation.Request`): where the operation runs
        all the same, ``array`` is overwritten with zeros first.
    gradient
        Count bytes and time as a gradient's in :class:`~sparse_ring.observe.metrics.Metrics`.
    dtype
        Name of the dtype for agreement and errors, default: the array's. ``"bfloat16"``: ``array`` holds bfloat16 bits.

    Raises ValueError: unknown op, non-finite factor, Sum, Average or factors on bool, a dtype that the wire cannot
    carry.
    """

    def __init__(
        self,
        name: str,
        array: NDArray[Any],
        op: str = "Average",
        *,
        exchanges: Exchanges,
        wire: str = "native",
        prescale: float = 1.0,
        postscale: float = 1.0,
        absent: bool = False,
        gradient: bool = False,
        dtype: str | None = None,
    ) -> None:
        prescale, postscale = float(prescale), float(postscale)
        # Training asks for the same again and again: what follows from the settings, and the request, are made once.
        settings = (op, wire, prescale, postscale, gradient, dtype, array.dtype)
        reduction: _Reduction | None = exchanges.remembered(settings)
        if reduction is None:
            self._check(name, array, op, prescale, postscale)
            reduction = exchanges.remember(
                settings, _Reduction.of(op, wire, prescale, postscale, gradient, dtype, array, exchanges)
            )
        self.array, self.op, self.gradient = array, op, gradient
        self.prescale, self.postscale = prescale, postscale
        self._reduction = reduction
        self._bfloat16 = exchanges.bfloat16
        self._half, self._travels, self.ring = dtype == "bfloat16", reduction.travels, reduction.ring
        asked = (name, array.shape, absent, reduction)
        request: Request | None = exchanges.remembered(asked)
        if request is None:
            request = exchanges.remember(
                asked, Request(name, "allreduce", reduction.dtype, array.shape, reduction.detail, absent)
            )
        self.request = request
        self.nbytes = array.size * reduction.wire_item_bytes
        self.payload_bytes = 0 if absent else array.size * reduction.travels.itemsize
        self._attached_bytes = 0

    @staticmethod
    def _check(name: str, array: NDArray[Any], op: str, prescale: float, postscale: float) -> None:
        if op not in OPS:
            raise ValueError(f"Tensor '{name}': op is {op!r}, but must be one of {', '.join(OPS)}.")
        if not (isfinite(prescale) and isfinite(postscale)):
            raise ValueError(f"Tensor '{name}': scale factors must be finite, not {prescale} and {postscale}.")
        if array.dtype == np.bool_ and (op in ("Sum", "Average") or (prescale, postscale) != (1.0, 1.0)):
            raise ValueError(
                f"Tensor '{name}': bool cannot be summed, averaged or scaled; use Min, Max or an integer dtype."
            )

    @property
    def fusion_key(self) -> Hashable:
        """Kind, dtype, op, wire and factors; all of them are agreed on."""
        return self._reduction.fusion_key

    @classmethod
    def run(cls, batch: Sequence[Agreed], link: Link) -> list[Any]:
        """Scale, reduce the arrays of the bucket, average: those whose payloads are here at once, the others in one ring."""
        started, sent = time.perf_counter(), link.metrics.sent_bytes
        operations = [cast(Allreduce, agreed.operation) for agreed in batch]
        first = operations[0]
        results: list[Any] = [operation.array for operation in operations]
        with np.errstate(all="ignore"):
            left = []
            for place, agreed in enumerate(batch):
                if not agreed.payloads:
                    left.append(operations[place])
                elif (error := operations[place]._reduce(agreed.payloads)) is not None:
                    results[place] = error
            if left:
                cls._run_ring(left, link)
        if first.gradient:
            metrics = link.metrics
            elements = sum(operation.array.size for operation in operations)
            metrics.dense_bytes += 4 * elements
            metrics.message_bytes += sum(operation.nbytes for operation in operations)
            metrics.ring_bytes += 4 * elements * 2 * (link.size - 1) / link.size
            metrics.gradient_wire_bytes += metrics.sent_bytes - sent
            metrics.gradient_wire_bytes += sum(op._attached_bytes for op in operations) * (link.size - 1)
            metrics.add_exchange(started)
        return results

    @classmethod
    def _run_ring(cls, operations: Sequence[Allreduce], link: Link) -> None:
        first, sent = operations[0], link.metrics.sent_bytes
        more = f" and {len(operations) - 1} more" if len(operations) > 1 else ""
        travelling = [operation._before(link.size) for operation in operations]
        at = now()
        first.ring.allreduce(travelling, first._sum_or(), link, f"allreduce '{first.request.name}'{more}")
        link.timeline.work("exchange", at, Track.EXCHANGE, sent_bytes=link.metrics.sent_bytes - sent)
        for operation, values in zip(operations, travelling, strict=True):
            operation._after(values, link.size)

    def payload(self, size: int) -> bytes:
        """Return what would travel by the ring, before it is rounded to the wire; the array stays as it is."""
        flat = self.array.reshape(-1)
        factor = self.prescale / self._headroom(size)
        if factor != 1.0:
            flat = flat.copy()
            self._scale(flat, factor)
        data = flat.astype(self._travels, copy=False).tobytes()
        self._attached_bytes = len(data)
        return data

    def _reduce(self, payloads: Sequence[bytes | None]) -> MessageError | None:
        """Reduce all ranks' payloads into the array; returns the error where one of them has a wrong length."""
        flat = self.array.reshape(-1)
        nbytes = flat.size * self._travels.itemsize
        arrays = []
        for rank, payload in enumerate(payloads):
            if payload is None:
                payload = bytes(nbytes)
            if len(payload) != nbytes:
                text = f"payload of {len(payload)} bytes instead of {nbytes}"
                return MessageError(text, rank=rank, parameter=self.request.name)
            arrays.append(np.frombuffer(payload, self._travels))
        values = flat if self._travels == flat.dtype else np.empty(flat.size, self._travels)
        self.ring.reduce_here(arrays, self._sum_or(), values)
        self._after(values, len(payloads))
        return None

    def _sum_or(self) -> str:
        return "Sum" if self.op == "Average" else self.op

    def _before(self, size: int) -> NDArray[Any]:
        """Return what travels: the array itself, scaled in place, or a wider copy."""
        flat = self.array.reshape(-1)
        factor = self.prescale / self._headroom(size)
        if self.request.absent:
            flat.fill(0)
        elif factor != 1.0:
            self._scale(flat, factor)
        return flat if self._travels == flat.dtype else flat.astype(self._travels)

    def _scale(self, flat: NDArray[Any], factor: float) -> None:
        self._edit(flat, lambda wide: np.multiply(wide, wide.dtype.type(factor), out=wide))

    def _headroom(self, size: int) -> int:
        """Return the power of two that scales an average down where float16 travels; exact but for subnormal values."""
        if self.op != "Average" or not (self.array.dtype == np.float16 or self.ring.wire.name == "float16"):
            return 1
        return 1 << (size - 1).bit_length()

    def _after(self, values: NDArray[Any], size: int) -> None:
        """Average and scale ``values`` and leave them in the array."""
        flat = self.array.reshape(-1)
        average = self.op == "Average" and size > 1
        if average and flat.dtype.kind in "iu" and not self._half:
            np.copyto(flat, _divide_toward_zero(values, size), casting="unsafe")
            average = False
        if average or self.postscale != 1.0:
            headroom = self._headroom(size)

            def finish(wide: NDArray[Any]) -> None:
                if average:
                    np.multiply(wide, wide.dtype.type(headroom), out=wide)
                    np.divide(wide, wide.dtype.type(size), out=wide)
                if self.postscale != 1.0:
                    np.multiply(wide, wide.dtype.type(self.postscale), out=wide)

            self._edit(flat, finish)

    def _edit(self, flat: NDArray[Any], edit: Callable[[NDArray[Any]], object]) -> None:
        """Apply ``edit`` to ``flat`` in a dtype that can hold a fraction and its product."""
        if self._half:
            wide = self._bfloat16.widen(flat)
            edit(wide)
            self._bfloat16.narrow(wide, flat)
        elif flat.dtype in (np.float32, np.float64):
            edit(flat)
        else:
            copy = flat.astype(np.float32 if flat.dtype == np.float16 else np.float64)
            edit(copy)
            np.copyto(flat, copy, casting="unsafe")


def _divide_toward_zero(values: NDArray[Any], divisor: int) -> NDArray[Any]:
    quotient = values // divisor
    quotient += (values < 0) & (quotient * divisor != values)
    return quotient
