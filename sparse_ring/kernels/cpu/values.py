"""The native value codes; see :mod:`sparse_ring.kernels.cpu.kernels`."""

from __future__ import annotations

from sparse_ring import _native
from sparse_ring.errors import MessageError
from sparse_ring.kernels import reasons
from sparse_ring.kernels.base import Bytes, Floats, Halves, levels_size
from sparse_ring.kernels.quantize import Scheme

LEVEL_BITS = (2, 3, 4, 8)


def need(argument: str, length: int, expected: int) -> None:
    """Raise ValueError where an argument has another length than expected."""
    if length != expected:
        raise ValueError(f"{argument} has {length} elements, but must have {expected}.")


def _need_payload(code: str, parts: str, length: int, expected: int, values: int) -> None:
    if length != expected:
        raise MessageError(f"{code} values: {reasons.LENGTH} ({length} {parts} for {values})")


def _need_bits(bits: int) -> None:
    if bits not in LEVEL_BITS:
        raise ValueError(f"bits is {bits}, but must be one of {', '.join(map(str, LEVEL_BITS))}.")


def _decoded(status: int, code: str) -> None:
    if status:
        raise MessageError(f"{code} values: {reasons.BY_CODE[status]}")


class CpuValueCodes:
    """Encoders and decoders of values in one table of native kernels."""

    _native: type[_native.Table]

    def float16_encode(self, values: Floats, out: Halves, decoded: Floats) -> float:
        """Encode as halves of a power of two; returns the scale."""
        n = len(values)
        need("out", len(out), n)
        need("decoded", len(decoded), n)
        return self._native.float16_encode(n, values, out, decoded)

    def float16_decode(self, payload: Halves, scale: float, values: Floats) -> None:
        """Decode halves, distrusting payload and scale."""
        n = len(values)
        _need_payload("float16", "halves", len(payload), n, n)
        _decoded(self._native.float16_decode(n, payload, scale, values), "float16")

    def bfloat16_encode(self, values: Floats, out: Halves, decoded: Floats) -> float:
        """Encode as bfloat16; returns the scale."""
        n = len(values)
        need("out", len(out), n)
        need("decoded", len(decoded), n)
        return self._native.bfloat16_encode(n, values, out, decoded)

    def bfloat16_decode(self, payload: Halves, values: Floats) -> None:
        """Decode bfloat16, distrusting the payload."""
        n = len(values)
        _need_payload("bfloat16", "halves", len(payload), n, n)
        _decoded(self._native.bfloat16_decode(n, payload, values), "bfloat16")

    def levels_encode(self, values: Floats, bits: int, out: Bytes, decoded: Floats) -> float:
        """Encode as levels of the excess; returns the scale."""
        n = len(values)
        _need_bits(bits)
        need("out", len(out), levels_size(n, bits))
        need("decoded", len(decoded), n)
        return self._native.levels_encode(n, values, bits, out, decoded)

    def levels_decode(self, payload: Bytes, bits: int, scale: float, values: Floats) -> None:
        """Decode levels, distrusting payload and scale."""
        n = len(values)
        _need_bits(bits)
        _need_payload(f"int{bits}", "bytes", len(payload), levels_size(n, bits), n)
        _decoded(self._native.levels_decode(n, payload, bits, scale, values), f"int{bits}")

    def quantize_encode(
        self, values: Floats, scheme: Scheme, scale: float, key: int, out: Bytes, decoded: Floats
    ) -> float:
        """Encode a whole gradient in few bits a value; returns the frame's scale."""
        n = len(values)
        need("out", len(out), scheme.size(n))
        need("decoded", len(decoded), n)
        signed = (key & (1 << 64) - 1 ^ 1 << 63) - (1 << 63)
        return self._native.quantize_encode(n, values, scheme.number, scale, signed, out, decoded)

    def quantize_decode(self, payload: Bytes, scheme: Scheme, scale: float, values: Floats) -> None:
        """Decode a whole gradient, distrusting payload and scale."""
        n = len(values)
        _need_payload(scheme.name, "bytes", len(payload), scheme.size(n), n)
        _decoded(self._native.quantize_decode(n, payload, scheme.number, scale, values), scheme.name)

    def sign_encode(self, values: Floats, out: Bytes, decoded: Floats) -> float:
        """Encode as sign bits; returns the mean magnitude."""
        n = len(values)
        need("out", len(out), (n + 7) // 8)
        need("decoded", len(decoded), n)
        return self._native.sign_encode(n, values, out, decoded)

    def sign_decode(self, payload: Bytes, scale: float, values: Floats) -> None:
        """Decode sign bits, distrusting payload and scale."""
        n = len(values)
        _need_payload("sign", "bytes", len(payload), (n + 7) // 8, n)
        _decoded(self._native.sign_decode(n, payload, scale, values), "sign")

    def float32_to_bfloat16(self, x: Floats, out: Halves) -> None:
        """Round to bfloat16."""
        n = len(x)
        need("out", len(out), n)
        self._native.float32_to_bfloat16(n, x, out)

    def bfloat16_to_float32(self, x: Halves, out: Floats) -> None:
        """Widen bfloat16."""
        n = len(x)
        need("out", len(out), n)
        self._native.bfloat16_to_float32(n, x, out)

    def float32_to_float16(self, x: Floats, out: Halves) -> None:
        """Round to half precision."""
        n = len(x)
        need("out", len(out), n)
        self._native.float32_to_float16(n, x, out)

    def float16_to_float32(self, x: Halves, out: Floats) -> None:
        """Widen half precision."""
        n = len(x)
        need("out", len(out), n)
        self._native.float16_to_float32(n, x, out)
