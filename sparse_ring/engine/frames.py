"""The bytes of a control frame: what one rank tells every other in a round of agreement.

Little-endian. Header: u8 magic, u32 round, u8 flags, u16 number of entries, u32 CRC-32 of all other bytes. With
``SETTINGS`` (rank 0, round 0): u64 fusion threshold, u16 cache capacity. Then the entries, each with a u8 of flags first:

* without ``FULL``: u16 cache id, for a request that all ranks remember;
* with ``FULL``: u16 name length, u8 kind length, u8 dtype length, u8 dimensions, u16 detail length, u64 each dimension,
  then the four texts in UTF-8;
* with ``PAYLOAD``, not of an absent rank: at the end of the entry u32 length and as many bytes of the operation's data.

Frames come from another rank, so every field is checked.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sparse_ring.engine.operation import Request
from sparse_ring.errors import MessageError

ENTRIES_BYTES = 64 << 10
# Data that travels with requests: at most this in a frame. To the P - 1 other ranks it takes more bytes than by a ring, but
# for two ranks; EXTRA_BYTES are sent in about the time that the ring's messages need to follow one another.
PAYLOADS_BYTES = 96 << 10
EXTRA_BYTES = 16 << 10
CAPACITY_BYTES = ENTRIES_BYTES + PAYLOADS_BYTES
MAGIC = 0xA7

GOODBYE = 1
SETTINGS = 2

ABSENT = 1
RAGGED = 2
FULL = 4
PAYLOAD = 8

_HEADER = struct.Struct("<BIBHI")
_CHECKED = _HEADER.size - 4
_SETTINGS = struct.Struct("<QH")
_CACHED = struct.Struct("<BH")
_LENGTHS = struct.Struct("<HBBBH")
_PAYLOAD = struct.Struct("<I")

ROOM_BYTES = ENTRIES_BYTES - _HEADER.size - _SETTINGS.size
MOST_ENTRIES = 65535


@dataclass(frozen=True, slots=True)
class Settings:
    """What rank 0 decides for all: bytes of a bucket, and how many names are remembered."""

    fusion_threshold: int
    cache_capacity: int


@dataclass(slots=True)
class Frame:
    """One rank's part of a round; ``payloads`` by the place of their request."""

    round: int
    requests: list[Request] = field(default_factory=list)
    goodbye: bool = False
    settings: Settings | None = None
    payloads: dict[int, bytes] = field(default_factory=dict)

    @property
    def payload_bytes(self) -> int:
        """Bytes of all payloads."""
        return sum(len(payload) for payload in self.payloads.values())


def payload_room_bytes(size: int) -> int:
    """Return how many bytes of payload entries a frame may have among ``size`` ranks."""
    if size < 3:
        return PAYLOADS_BYTES if size == 2 else 0
    return min(PAYLOADS_BYTES, EXTRA_BYTES * size // ((size - 1) * (size - 2)))


def payload_entry_bytes(nbytes: int) -> int:
    """Return what a payload of so many bytes adds to its entry."""
    return _PAYLOAD.size + nbytes


def pack_payload(entry: bytes, payload: bytes) -> bytes:
    """Return a request's entry with a payload."""
    return b"".join((bytes((entry[0] | PAYLOAD,)), entry[1:], _PAYLOAD.pack(len(payload)), payload))


def pack_cached(cache_id: int, absent: bool) -> bytes:
    """Return the entry (3 bytes) of a request that all ranks remember."""
    return _CACHED.pack(ABSENT * absent, cache_id)


def pack_request(request: Request) -> bytes:
    """Return a request's full entry. Raises ValueError naming the tensor where it doesn't fit a frame."""
    name, kind, dtype, detail = (text.encode() for text in (request.name, request.kind, request.dtype, request.detail))
    flags = FULL | ABSENT * request.absent | RAGGED * request.ragged
    try:
        lengths = _LENGTHS.pack(len(name), len(kind), len(dtype), len(request.shape), len(detail))
        shape = struct.pack(f"<{len(request.shape)}Q", *request.shape)
    except struct.error as error:
        raise ValueError(f"Tensor '{request.name[:200]}': its request can't be sent: {error}.") from None
    entry = b"".join((bytes((flags,)), lengths, shape, name, kind, dtype, detail))
    if len(entry) > ROOM_BYTES:
        raise ValueError(
            f"Tensor '{request.name[:200]}': its name and settings take {len(entry)} bytes, but {ROOM_BYTES} are the "
            f"most; give it a shorter name."
        )
    return entry


def pack_frame(frame: Frame, entries: Sequence[bytes]) -> bytes:
    """Return the bytes of a frame; ``entries`` are its packed requests, at most ``ROOM_BYTES`` together."""
    flags = GOODBYE * frame.goodbye | SETTINGS * (frame.settings is not None)
    body = b"".join(entries)
    if frame.settings is not None:
        body = _SETTINGS.pack(frame.settings.fusion_threshold, frame.settings.cache_capacity) + body
    header = _HEADER.pack(MAGIC, frame.round, flags, len(entries), 0)[:_CHECKED]
    return b"".join((header, struct.pack("<I", zlib.crc32(body, zlib.crc32(header))), body))


def unpack_frame(data: bytes, rank: int, cached: Callable[[int, int, bool], Request]) -> Frame:
    """Decode the frame that ``rank`` sent.

    ``cached(id, rank, absent)`` returns a remembered request or raises LookupError. Raises MessageError naming
    the rank where anything is damaged.
    """
    try:
        return _unpack(data, rank, cached)
    except (struct.error, LookupError, ValueError) as error:
        reason = error.reason if isinstance(error, MessageError) else f"{type(error).__name__}: {error}"
        raise MessageError(f"damaged control frame of {len(data)} bytes: {reason}", rank=rank) from None


def _unpack(data: bytes, rank: int, cached: Callable[[int, int, bool], Request]) -> Frame:
    magic, number, flags, count, checksum = _HEADER.unpack_from(data)
    if magic != MAGIC or flags & ~(GOODBYE | SETTINGS):
        raise MessageError(f"magic {magic:#x}, flags {flags:#x}")
    at = _HEADER.size
    if zlib.crc32(data[at:], zlib.crc32(data[:_CHECKED])) != checksum:
        raise MessageError("wrong checksum")
    frame = Frame(number, goodbye=bool(flags & GOODBYE))
    if flags & SETTINGS:
        frame.settings = Settings(*_SETTINGS.unpack_from(data, at))
        at += _SETTINGS.size
    for place in range(count):
        kind = data[at]
        if kind & FULL:
            request, at = _unpack_request(data, at)
            frame.requests.append(request)
        else:
            kind, cache_id = _CACHED.unpack_from(data, at)
            if kind & ~(ABSENT | PAYLOAD):
                raise MessageError(f"entry flags {kind:#x}")
            frame.requests.append(cached(cache_id, rank, bool(kind & ABSENT)))
            at += _CACHED.size
        if kind & PAYLOAD:
            frame.payloads[place], at = _unpack_payload(data, at, kind)
    if at != len(data):
        raise MessageError(f"{len(data) - at} bytes too many")
    return frame


def _unpack_request(data: bytes, at: int) -> tuple[Request, int]:
    flags = data[at]
    if flags & ~(ABSENT | RAGGED | FULL | PAYLOAD):
        raise MessageError(f"entry flags {flags:#x}")
    at += 1
    name_bytes, kind_bytes, dtype_bytes, dimensions, detail_bytes = _LENGTHS.unpack_from(data, at)
    at += _LENGTHS.size
    shape = struct.unpack_from(f"<{dimensions}Q", data, at)
    at += 8 * dimensions
    texts = []
    for length in (name_bytes, kind_bytes, dtype_bytes, detail_bytes):
        if at + length > len(data):
            raise MessageError("a text is cut short")
        texts.append(data[at : at + length].decode())
        at += length
    name, kind, dtype, detail = texts
    return Request(name, kind, dtype, shape, detail, bool(flags & ABSENT), bool(flags & RAGGED)), at


def _unpack_payload(data: bytes, at: int, flags: int) -> tuple[bytes, int]:
    if flags & ABSENT:
        raise MessageError(f"entry flags {flags:#x}")
    (length,) = _PAYLOAD.unpack_from(data, at)
    at += _PAYLOAD.size
    if at + length > len(data):
        raise MessageError("a payload is cut short")
    return data[at : at + length], at + length
