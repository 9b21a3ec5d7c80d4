from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparse_ring.engine.frames import (
    PAYLOADS_BYTES,
    ROOM_BYTES,
    Frame,
    Settings,
    pack_cached,
    pack_frame,
    pack_payload,
    pack_request,
    payload_room_bytes,
    unpack_frame,
)
from sparse_ring.engine.operation import Request
from sparse_ring.errors import MessageError

REMEMBERED = [Request(f"known.{number}", "allreduce") for number in range(3)]
TEXT = st.text(st.characters(codec="utf-8"), max_size=60)

REQUESTS = st.builds(
    Request, TEXT, TEXT, TEXT, st.lists(st.integers(0, 2**64 - 1), max_size=8).map(tuple), TEXT, st.booleans(), st.booleans()
)  # fmt: skip


def cached(cache_id: int, rank: int, absent: bool) -> Request:
    request = REMEMBERED[cache_id]
    return Request(f"{request.name}@{rank}", request.kind, absent=absent)


def with_checksum(body: bytes, count: int, *, magic: int = 0xA7, flags: int = 0) -> bytes:
    header = struct.pack("<BIBH", magic, 5, flags, count)
    return header + struct.pack("<I", zlib.crc32(header + body)) + body


@given(
    st.lists(REQUESTS, max_size=20),
    st.integers(0, 2**32 - 1),
    st.booleans(),
    st.none() | st.builds(Settings, st.integers(0, 2**64 - 1), st.integers(0, 65535)),
    st.lists(st.none() | st.binary(max_size=300), min_size=20, max_size=20),
)
def test_a_frame_comes_back_as_it_was(
    requests: list[Request], number: int, goodbye: bool, settings: Settings | None, data: list[bytes | None]
) -> None:
    frame = Frame(number, requests, goodbye, settings)
    entries = [pack_request(request) for request in requests]
    for place, (request, payload) in enumerate(zip(requests, data, strict=False)):
        if payload is not None and not request.absent:
            frame.payloads[place] = payload
            entries[place] = pack_payload(entries[place], payload)
    assert unpack_frame(pack_frame(frame, entries), 1, cached) == frame
    assert frame.payload_bytes == sum(map(len, frame.payloads.values()))


def test_golden_bytes() -> None:
    request = Request("w", "allreduce", "float32", (2, 3), "op=Sum", absent=True, ragged=True)
    frame = Frame(258, goodbye=True, settings=Settings(8 << 20, 4096))
    data = pack_frame(frame, [pack_cached(2, absent=True), pack_request(request)])
    assert data.hex(" ") == " ".join([
        "a7", "02 01 00 00", "03", "02 00", "eb 0d 47 b9", "00 00 80 00 00 00 00 00", "00 10",
        "01", "02 00",
        "07", "01 00", "09", "07", "02", "06 00", "02 00 00 00 00 00 00 00", "03 00 00 00 00 00 00 00",
        "77", "61 6c 6c 72 65 64 75 63 65", "66 6c 6f 61 74 33 32", "6f 70 3d 53 75 6d",
    ])  # fmt: skip
    assert unpack_frame(data, 4, cached).requests == [Request("known.2@4", "allreduce", absent=True), request]


def test_golden_bytes_of_payloads() -> None:
    request = Request("w", "allreduce", "int8", (2,))
    entries = [pack_payload(pack_cached(1, absent=False), b"abc"), pack_payload(pack_request(request), b"")]
    data = pack_frame(Frame(1), entries)
    assert data[12:].hex(" ") == " ".join([
        "08", "01 00", "03 00 00 00", "61 62 63",
        "0c", "01 00", "09", "04", "01", "00 00", "02 00 00 00 00 00 00 00",
        "77", "61 6c 6c 72 65 64 75 63 65", "69 6e 74 38", "00 00 00 00",
    ])  # fmt: skip
    assert unpack_frame(data, 4, cached).payloads == {0: b"abc", 1: b""}


def test_more_ranks_leave_less_room_for_payloads() -> None:
    rooms = [payload_room_bytes(size) for size in (1, 2, 3, 4, 8, 1024)]
    assert rooms[0] == 0
    assert rooms[1] == PAYLOADS_BYTES
    assert rooms[1:] == sorted(rooms[1:], reverse=True)


def test_a_remembered_request_takes_three_bytes() -> None:
    assert len(pack_cached(65535, absent=False)) == 3


def test_every_flipped_bit_and_every_cut_is_noticed() -> None:
    entries = [pack_cached(1, absent=False), pack_request(Request("weight", "gradient", "float32", (4,)))]
    entries.append(pack_payload(pack_cached(2, absent=False), b"data"))
    data = pack_frame(Frame(3, settings=Settings(1, 2)), entries)
    damaged = [data[:length] for length in range(len(data))]
    damaged += [
        data[:at] + bytes((data[at] ^ (1 << bit),)) + data[at + 1 :] for at in range(len(data)) for bit in range(8)
    ]
    for wrong in damaged:
        with pytest.raises(MessageError, match=r"^Message from rank 7: damaged control frame of \d+ bytes: ") as caught:
            unpack_frame(wrong, 7, cached)
        assert caught.value.rank == 7


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (with_checksum(b"", 0, magic=1), "magic 0x1, flags 0x0"),
        (with_checksum(b"", 0, flags=4), "magic 0xa7, flags 0x4"),
        (with_checksum(b"", 1), "IndexError: index out of range"),
        (with_checksum(b"\x00\x01\x00\x00", 1), "1 bytes too many"),
        (with_checksum(b"\x00\x03\x00", 1), "IndexError: list index out of range"),
        (with_checksum(b"\x02\x01\x00", 1), "entry flags 0x2"),
        (with_checksum(b"\x14", 1), "entry flags 0x14"),
        (with_checksum(b"\x10\x01\x00", 1), "entry flags 0x10"),
        (with_checksum(b"\x09\x01\x00\x00\x00\x00\x00", 1), "entry flags 0x9"),
        (with_checksum(b"\x08\x01\x00\x03\x00\x00\x00ab", 1), "a payload is cut short"),
        (with_checksum(b"\x08\x01\x00\xff\xff\xff\xffab", 1), "a payload is cut short"),
        (with_checksum(b"\x08\x01\x00\x03\x00", 1), "error: unpack_from requires"),
        (with_checksum(b"\x04\x05\x00\x00\x00\x00\x00\x00abcd", 1), "a text is cut short"),
        (with_checksum(b"\x04\x01\x00\x00\x00\x00\x00\x00\xff", 1), "UnicodeDecodeError"),
        (with_checksum(b"\x04\x00\x00\x00\x00\x09\x00\x00abcd", 1), "error: unpack_from requires"),
        (with_checksum(b"", 0, flags=2), "error: unpack_from requires"),
    ],
)
def test_hostile_frames_with_a_right_checksum_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(MessageError) as caught:
        unpack_frame(data, 2, cached)
    assert reason in str(caught.value)
    assert caught.value.rank == 2


@given(st.binary(max_size=200), st.integers(0, 40), st.integers(0, 3))
def test_random_bodies_raise_nothing_else(body: bytes, count: int, flags: int) -> None:
    try:
        frame = unpack_frame(with_checksum(body, count, flags=flags), 0, cached)
    except MessageError as error:
        assert error.rank == 0  # noqa: PT017 - some bodies are valid
    else:
        assert len(frame.requests) == count


def test_a_request_that_fits_no_frame_names_its_tensor() -> None:
    with pytest.raises(ValueError, match=r"^Tensor 'nnn.*take \d+ bytes, but \d+ are the most"):
        pack_request(Request("n" * ROOM_BYTES, "allreduce"))
    with pytest.raises(ValueError, match=r"^Tensor 'w': its request can't be sent"):
        pack_request(Request("w", "allreduce", "float32", (-1,)))
    with pytest.raises(ValueError, match=r"^Tensor 'w': its request can't be sent"):
        pack_request(Request("w", "k" * 256))
