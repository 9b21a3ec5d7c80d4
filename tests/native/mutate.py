"""Ways to damage a message, with what its fields mean in mind, and to make its checksums right again."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sparse_ring.encode import VALUE_CODES
from sparse_ring.message.frame import FRAME_HEADER, MESSAGE_HEADER, padded

if TYPE_CHECKING:
    from tests.native.corpus import Corpus

Bytes = NDArray[np.uint8]

INTERESTING = [0, 1, 2, 3, 7, 8, 31, 32, 33, 127, 128, 255, 4095, 4096, 65_535, 65_536, 2**31 - 1, 2**31, 2**32 - 1]
FIELDS = struct.calcsize("<IIIf")  # of a frame's header, before its four bytes of codes and flags


def frames_of(message: Bytes) -> list[tuple[int, int]]:
    """Where frames begin and end, as far as their lengths make sense."""
    frames, start = [], MESSAGE_HEADER.size
    while start + FRAME_HEADER.size <= message.size:
        _, count, index_bytes, _, _, value_code, *_ = FRAME_HEADER.unpack_from(message.data, start)
        value_bytes = VALUE_CODES[value_code].size(count) if value_code in VALUE_CODES else 0
        end = start + FRAME_HEADER.size + padded(value_bytes + index_bytes)
        frames.append((start, min(end, message.size)))
        start = end
    return frames


def repaired(message: Bytes) -> Bytes:
    """Write the checksums that fit the other bytes; a frame that leaves the message gets that of what there is of it."""
    if message.size >= MESSAGE_HEADER.size:
        struct.pack_into("<I", message.data, 16, zlib.crc32(message[:16].tobytes()))
    for start, end in frames_of(message):
        head = zlib.crc32(message[start : start + 20].tobytes())
        struct.pack_into("<I", message.data, start + 20, zlib.crc32(message[start + 24 : end].tobytes(), head))
    return message


def mutated(message: Bytes, corpus: Corpus, generator: random.Random) -> Bytes:
    """A copy with one to three mutations."""
    changed = message.copy()
    for _ in range(generator.choice((1, 1, 1, 2, 3))):
        changed = generator.choice(MUTATIONS)(changed, corpus, generator)
    return changed


def _flip_bit(message: Bytes, corpus: Corpus, generator: random.Random) -> Bytes:
    if message.size:
        message[generator.randrange(message.size)] ^= 1 << generator.randrange(8)
    return message


def _set_byte(message: Bytes, corpus: Corpus, generator: random.Random) -> Bytes:
    if message.size:
        message[generator.randrange(message.size)] = generator.choice(
            (0, 1, 0x7F, 0x80, 0xFF, generator.randrange(256))
        )
    return message


def _frame(message: Bytes, generator: random.Random) -> int | None:
    frames = frames_of(message)
    return generator.choice(frames)[0] if frames else None


def _number(old: int, generator: random.Random) -> int:
    return (
        generator.choice((generator.choice(INTERESTING), old + 1, old - 1, old * 2, generator.getrandbits(32))) % 2**32
    )


def _set_field(message: Bytes, corpus: Corpus, generator: random.Random) -> Bytes:
    """One of parameter, count, index bytes, scale."""
    if (start := _frame(message, generator)) is not None:
        at = start + 4 * generator.randrange(4)
        (old,) = struct.unpack_from("<I", message.data, at)
        struct.pack_into("<I", message.data, at, _number(old, generator))
    return message


def _set_code(message: Bytes, corpus: Corpus, generator: random.Random) -> Bytes:
    """Index code, value code, dtype or flags."""
    if (start := _frame(message, generator)) is not None:
        message[start + FIELDS + generator.choice((0, 0, 0, 1, 1, 1, 2, 3))] = generator.randrange(len(VALUE_CODES) + 1)
    return message


def _payload(message: Bytes, start: int) -> tuple[int, int, int]:
    """Where a frame's values, its indices and what is behind it begin."""
    _, count, index_bytes, _, _, value_code, *_ = FRAME_HEADER.unpack_from(message.data, start)
    values = start + FRAME_HEADER.size
    indices = min(message.size, values + (VALUE_CODES[value_code].size(count) if value_code in VALUE_CODES else 0))
    return values, indices, min(message.size, indices + index_bytes)


def _set_number_of_indices(message: Bytes, corpus: Corpus, generator: random.Random) -> Bytes:
    """A u8, u16 or u32 near the beginning of the indices: parameters, widths, directories."""
    if (start := _frame(message, generator)) is not None:
        _, indices, end = _payload(message, start)
        width, form = generator.choice(((1, "<B"), (2, "<H"), (4, "<I")))
        at = indices + generator.choice((0, 0, 0, generator.randrange(40)))
        if at + width <= end:
            (old,) = struct.unpack_from(form, message.data, at)
            struct.pack_into(form, message.data, at, _number(old, generator) % 256**width)
    return message


def _set_number_of_values(message: Bytes, corpus: Corpus, generator: random.Random) -> Bytes:
    """A u32 among the first of the values: scales, the smallest magnitude, the number of a table."""
    if (start := _frame(message, generator)) is not None:
        values, indices, _ = _payload(message, start)
        at = values + 4 * generator.randrange(4)
        if at + 4 <= indices:
            (old,) = struct.unpack_from("<I", message.data, at)
            struct.pack_into("<I", message.data, at, _number(old, generator))
    return message


def _resize_indices(message: Bytes, corpus: Corpus, generator: random.Random) -> Bytes:
    """Cut indices short or add bytes behind them, with the lengths that say so."""
    if (start := _frame(message, generator)) is None:
        return message
    _, indices, end = _payload(message, start)
    after = min(message.size, indices + padded(end - indices))
    size = generator.choice((end - indices - 1, end - indices + 1, generator.randrange(end - indices + 9)))
    body = bytes(message[indices:end])[: max(0, size)].ljust(max(0, size), generator.choice((b"\0", b"\xff", b"\x80")))
    values = indices - start - FRAME_HEADER.size
    body = body.ljust(padded(values + len(body)) - values, b"\0")
    struct.pack_into("<I", message.data, start + 8, max(0, size))
    parts = (message[:indices], np.frombuffer(body, np.uint8), message[after:])
    return np.concatenate(parts)


def _other_payload(message: Bytes, corpus: Corpus, generator: random.Random) -> Bytes:
    """Bytes of another message over a part of this one's payload."""
    if (start := _frame(message, generator)) is not None:
        values, _, end = _payload(message, start)
        other = corpus.samples[generator.randrange(len(corpus.samples))].message
        if end > values and other.size > 44:
            at, source = generator.randrange(values, end), generator.randrange(44, other.size)
            length = min(end - at, other.size - source, 1 + generator.randrange(64))
            message[at : at + length] = other[source : source + length]
    return message


def _cut(message: Bytes, corpus: Corpus, generator: random.Random) -> Bytes:
    return message[: generator.randrange(message.size + 1)].copy()


def _extend(message: Bytes, corpus: Corpus, generator: random.Random) -> Bytes:
    return np.append(message, np.zeros(generator.choice((1, 4, 24)), np.uint8))


Mutation = Callable[[Bytes, "Corpus", random.Random], Bytes]
MUTATIONS: list[Mutation] = [
    _flip_bit, _flip_bit, _set_byte, _set_field, _set_code, _set_number_of_values, _set_number_of_values,
    _set_number_of_indices, _set_number_of_indices, _resize_indices, _other_payload, _cut, _extend,
]  # fmt: skip
