"""Writes one rank's message into a buffer that is reused from bucket to bucket."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from sparse_ring.encode import Codec, Encoded, EveryIndex, Float32, ValueCode
from sparse_ring.kernels.base import Kernels
from sparse_ring.message.frame import (
    FLOAT32,
    FRAME_HEADER,
    MAGIC,
    MESSAGE_HEADER,
    NONFINITE,
    REFUSED,
    VERSION,
    padded,
)
from sparse_ring.sparse import SparseGradient

_DENSE = Codec(EveryIndex(), Float32())


def frame_bound(payload_bytes: int) -> int:
    """Return the bytes that a frame takes with at most so many bytes of payload."""
    return FRAME_HEADER.size + padded(payload_bytes)


def message_bound(frame_bounds: Iterable[int]) -> int:
    """Return the bytes that a message of such frames takes at most."""
    return MESSAGE_HEADER.size + sum(frame_bounds)


class MessageWriter:
    """Frames are added one after another; ``finish`` returns the message, valid until the next ``begin``."""

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels
        self._buffer = np.empty(1 << 16, dtype=np.uint8)
        self._end = 0
        self._frames = 0
        self._step = self._plan = 0

    def begin(self, step: int, plan: int) -> None:
        """Start a message for optimizer step ``step`` under the plan with hash ``plan`` (both u32)."""
        self._step, self._plan = step, plan
        self._end, self._frames = MESSAGE_HEADER.size, 0

    def add_sparse(self, parameter: int, sparse: SparseGradient, codec: Codec, decoded: NDArray[np.float32]) -> Encoded:
        """Add the kept elements of a parameter; ``decoded`` (``float32[count]``) becomes what receivers see."""
        self._reserve(codec.bound(sparse.count, sparse.numel))
        payload = self._buffer[self._end + FRAME_HEADER.size :]
        encoded = codec.encode(sparse, payload, decoded, self._kernels)
        self._close_frame(parameter, sparse.count, codec, encoded, flags=0)
        return encoded

    def add_dense(self, parameter: int, values: NDArray[np.float32]) -> None:
        """Add all elements of a parameter in float32."""
        encoded = Encoded(4 * values.size, 0, 1.0)
        self._reserve(encoded.value_bytes)
        start = self._end + FRAME_HEADER.size
        self._buffer[start : start + encoded.value_bytes].view(np.float32)[:] = values
        self._close_frame(parameter, values.size, _DENSE, encoded, flags=0)

    def add_dense_coded(
        self, parameter: int, values: NDArray[np.float32], code: ValueCode, decoded: NDArray[np.float32]
    ) -> Encoded:
        """Add all elements of a parameter in a value code; ``decoded`` (``float32[numel]``) becomes what receivers see."""
        size = code.size(values.size)
        self._reserve(size)
        start = self._end + FRAME_HEADER.size
        scale = code.encode(values, self._buffer[start : start + size], decoded, self._kernels)
        encoded = Encoded(size, 0, scale)
        self._close_frame(parameter, values.size, Codec(EveryIndex(), code), encoded, flags=0)
        return encoded

    def add_nonfinite(self, parameter: int, codec: Codec = _DENSE) -> None:
        """Add the empty frame that says: this rank's gradient was not finite."""
        self._reserve(0)
        self._close_frame(parameter, 0, codec, Encoded(0, 0, 0.0), flags=NONFINITE)

    def add_refused(self, parameter: int) -> None:
        """Add the empty frame that says: what this rank was to add up could not be read."""
        self._reserve(0)
        self._close_frame(parameter, 0, _DENSE, Encoded(0, 0, 0.0), flags=REFUSED)

    def frames(self) -> NDArray[np.uint8]:
        """Return a copy of the frames that were added since ``begin``, for ``add``."""
        frames: NDArray[np.uint8] = self._buffer[MESSAGE_HEADER.size : self._end].copy()
        return frames

    def add(self, frame: NDArray[np.uint8]) -> None:
        """Add one frame as ``frames`` returned it."""
        self._reserve(frame.size)
        self._buffer[self._end : self._end + frame.size] = frame
        self._end += frame.size
        self._frames += 1

    def finish(self) -> NDArray[np.uint8]:
        """Write the header and return the message."""
        fields = (MAGIC, VERSION, 0, self._step, self._plan, self._frames)
        MESSAGE_HEADER.pack_into(self._buffer.data, 0, *fields, 0)
        checksum = self._kernels.crc32(self._buffer[: MESSAGE_HEADER.size - 4])
        MESSAGE_HEADER.pack_into(self._buffer.data, 0, *fields, checksum)
        return self._buffer[: self._end]

    def _reserve(self, payload_bytes: int) -> None:
        needed = self._end + FRAME_HEADER.size + padded(payload_bytes)
        if needed > self._buffer.size:
            grown = np.empty(max(needed, 2 * self._buffer.size), dtype=np.uint8)
            grown[: self._end] = self._buffer[: self._end]
            self._buffer = grown

    def _close_frame(self, parameter: int, count: int, codec: Codec, encoded: Encoded, flags: int) -> None:
        start = self._end
        payload = start + FRAME_HEADER.size
        used = encoded.value_bytes + encoded.index_bytes
        end = payload + padded(used)
        self._buffer[payload + used : end] = 0
        fields = (
            parameter,
            count,
            encoded.index_bytes,
            encoded.scale,
            codec.index.identifier,
            codec.value.identifier,
            FLOAT32,
            flags,
        )
        FRAME_HEADER.pack_into(self._buffer.data, start, *fields, 0)
        checksum = self._kernels.crc32(self._buffer[start : payload - 4])
        checksum = self._kernels.crc32(self._buffer[payload:end], checksum)
        FRAME_HEADER.pack_into(self._buffer.data, start, *fields, checksum)
        self._end = end
        self._frames += 1
