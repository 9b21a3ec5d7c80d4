"""The fixed parts of the wire format, version 1, little-endian; ``docs/wire-format.md`` is the same in words.

message = header (20 bytes) + frames

    u16 magic 0x5253 ("SR") · u8 version · u8 flags (0) · u32 step · u32 plan · u32 frames · u32 checksum of the 16 bytes before

frame = header (24 bytes) + value bytes + index bytes + zero padding to a multiple of 4

    u32 parameter · u32 count · u32 index bytes · f32 scale · u8 index code · u8 value code · u8 dtype (0 = float32) · u8 flags ·
    u32 checksum of the 20 bytes before, the values, the indices and the padding

Flag 1 of a frame: this rank's gradient was not finite. Flag 2: this rank could not read what it was to add up. Such a frame is
empty. Checksums are CRC-32 (IEEE 802.3).
The header is a whole number of words and values come first, so that every array in a message is aligned.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MAGIC = 0x5253
VERSION = 1
ALIGNMENT = 4
MESSAGE_HEADER = struct.Struct("<HBBIIII")
FRAME_HEADER = struct.Struct("<IIIfBBBBI")
FLOAT32 = 0
NONFINITE = 1
REFUSED = 2


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame as it lies in a message; the payloads are views of the message's bytes.

    parameter
        Its number in the plan.
    count
        Kept elements; all of the parameter's where ``index_code`` is 0.
    """

    parameter: int
    count: int
    scale: float
    index_code: int
    value_code: int
    nonfinite: bool
    refused: bool
    values: NDArray[np.uint8]
    indices: NDArray[np.uint8]


def padded(nbytes: int) -> int:
    """Return ``nbytes`` rounded up to a whole number of words."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
