"""Reads another rank's message; every field is checked before it is used."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sparse_ring.encode import INDEX_CODES, VALUE_CODES
from sparse_ring.errors import MessageError
from sparse_ring.kernels.base import Kernels
from sparse_ring.message.frame import (
    FLOAT32,
    FRAME_HEADER,
    MAGIC,
    MESSAGE_HEADER,
    NONFINITE,
    REFUSED,
    VERSION,
    Frame,
    padded,
)


def read_message(
    message: NDArray[np.uint8], step: int, plan: int, frames: int, kernels: Kernels
) -> list[Frame | MessageError]:
    """Split a message into its frames, in order.

    A frame whose checksum or header is wrong becomes the MessageError that says why, so that its neighbours remain usable;
    its length has to be right for that. Raises MessageError where the message as a whole cannot be read: wrong magic, version,
    step, plan or number of frames, wrong header checksum, or lengths that leave the message.
    """
    _check_header(message, step, plan, frames, kernels)
    found: list[Frame | MessageError] = []
    start = MESSAGE_HEADER.size
    for number in range(frames):
        if message.size - start < FRAME_HEADER.size:
            raise MessageError(f"ends inside the header of frame {number}")
        end, frame = _read_frame(message, start, number, kernels)
        found.append(frame)
        start = end
    if start != message.size:
        raise MessageError(f"{message.size - start} bytes follow the last frame")
    return found


def _check_header(message: NDArray[np.uint8], step: int, plan: int, frames: int, kernels: Kernels) -> None:
    if message.size < MESSAGE_HEADER.size:
        raise MessageError(f"{message.size} bytes are less than a header")
    magic, version, flags, its_step, its_plan, its_frames, checksum = MESSAGE_HEADER.unpack_from(message.data)
    if magic != MAGIC:
        raise MessageError(f"magic is {magic:#06x}, not {MAGIC:#06x}")
    if version != VERSION or flags != 0:
        raise MessageError(
            f"wire format {version} (flags {flags}), but this rank speaks {VERSION}: install one version of sparse_ring"
        )
    if checksum != kernels.crc32(message[: MESSAGE_HEADER.size - 4]):
        raise MessageError("the header's checksum is wrong")
    if its_plan != plan:
        raise MessageError(f"plan {its_plan:08x}, but {plan:08x} here: give all ranks the same model and compression")
    if its_step != step:
        raise MessageError(f"is of step {its_step}, but this rank is at {step}: resume all ranks from one checkpoint")
    if its_frames == 0:
        raise MessageError("is empty: that rank failed before it could send; its own error says why")
    if its_frames != frames:
        raise MessageError(f"{its_frames} frames, but {frames} were agreed")


def _read_frame(
    message: NDArray[np.uint8], start: int, number: int, kernels: Kernels
) -> tuple[int, Frame | MessageError]:
    header = FRAME_HEADER.unpack_from(message.data, start)
    parameter, count, index_bytes, scale, index_code, value_code, dtype, flags, checksum = header
    if value_code not in VALUE_CODES or index_code not in INDEX_CODES:
        raise MessageError(f"frame {number} has unknown codes (index {index_code}, value {value_code})")
    payload = start + FRAME_HEADER.size
    value_bytes = VALUE_CODES[value_code].size(count)
    end = payload + padded(value_bytes + index_bytes)
    if end > message.size:
        raise MessageError(f"frame {number} ends {end - message.size} bytes behind the message")
    expected = kernels.crc32(message[payload:end], kernels.crc32(message[start : payload - 4]))
    if checksum != expected:
        return end, MessageError(f"frame {number} (parameter {parameter}) has a wrong checksum")
    if np.any(message[payload + value_bytes + index_bytes : end]):
        return end, MessageError(f"frame {number} has padding that is not zero")
    if dtype != FLOAT32 or flags & ~(NONFINITE | REFUSED):
        return end, MessageError(f"frame {number} has unknown dtype {dtype} or flags {flags}")
    values = message[payload : payload + value_bytes]
    indices = message[payload + value_bytes : payload + value_bytes + index_bytes]
    nonfinite, refused = bool(flags & NONFINITE), bool(flags & REFUSED)
    frame = Frame(parameter, count, scale, index_code, value_code, nonfinite, refused, values, indices)
    return end, frame
