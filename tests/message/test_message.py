import struct
import zlib

import numpy as np
import pytest

from sparse_ring.encode import INDEX_CODES, VALUE_CODES, VALUE_NAMES, Codec
from sparse_ring.errors import MessageError
from sparse_ring.kernels.table import kernels_for
from sparse_ring.message import Frame, MessageWriter, read_message
from sparse_ring.sparse import SparseGradient

KERNELS = kernels_for("reference")
STEP, PLAN = 7, 0xABCD1234


def write(codec=None):
    """A message of one sparse, one dense and one flagged frame."""
    writer = MessageWriter(KERNELS)
    writer.begin(STEP, PLAN)
    sparse = SparseGradient(np.array([1, 5, 6], np.uint32), np.array([0.5, -2.0, 1.0], np.float32), 10)
    decoded = np.empty(3, np.float32)
    codec = codec or Codec.named("golomb", "float32")
    writer.add_sparse(0, sparse, codec, decoded)
    writer.add_dense(1, np.array([1.0, 2.0], np.float32))
    writer.add_nonfinite(2, codec)
    return writer.finish().copy()


def read(message):
    return read_message(message, STEP, PLAN, 3, KERNELS)


def values_of(frame):
    values = np.empty(frame.count, np.float32)
    VALUE_CODES[frame.value_code].decode(frame.values, frame.scale, values, KERNELS)
    return values.tolist()


def test_what_was_written_is_read():
    sparse, dense, flagged = read(write())
    assert (sparse.parameter, dense.parameter, flagged.parameter) == (0, 1, 2)
    assert values_of(sparse) == [0.5, -2.0, 1.0]
    indices = np.empty(3, np.uint32)
    INDEX_CODES[sparse.index_code].decode(sparse.indices, 10, indices, KERNELS)
    assert indices.tolist() == [1, 5, 6]
    assert values_of(dense) == [1.0, 2.0]
    assert flagged.nonfinite
    assert not sparse.nonfinite
    assert flagged.count == 0


def test_a_refusal_is_told_from_a_gradient_that_is_not_finite():
    writer = MessageWriter(KERNELS)
    writer.begin(STEP, PLAN)
    writer.add_refused(4)
    (frame,) = read_message(writer.finish(), STEP, PLAN, 1, KERNELS)
    assert (frame.parameter, frame.count, frame.refused, frame.nonfinite) == (4, 0, True, False)


def test_layout_is_the_documented_one():
    """The header and the dense frame, byte by byte, from the page on the wire format."""
    message = write()
    header = struct.pack("<HBBIII", 0x5253, 1, 0, STEP, PLAN, 3)
    assert message[:20].tobytes() == header + struct.pack("<I", zlib.crc32(header))
    frame = struct.pack("<IIIfBBBB", 1, 2, 0, 1.0, 0, 0, 0, 0)
    payload = struct.pack("<ff", 1.0, 2.0)
    whole = frame + struct.pack("<I", zlib.crc32(frame + payload)) + payload
    assert whole in message.tobytes()
    assert message.size % 4 == 0


@pytest.mark.parametrize("indices", [code.name for code in INDEX_CODES.values() if code.name != "every"])
@pytest.mark.parametrize("values", list(VALUE_NAMES))
def test_frames_stay_aligned_for_every_codec(indices, values):
    message = write(Codec.named(indices, values))
    frames = read(message)
    assert all((frame.values.ctypes.data - message.ctypes.data) % 4 == 0 for frame in frames)


def test_any_single_changed_byte_is_noticed():
    message = write()
    for position in range(message.size):
        damaged = message.copy()
        damaged[position] ^= 0x40
        try:
            frames = read(damaged)
        except MessageError:
            continue
        assert any(isinstance(frame, MessageError) for frame in frames), position


def test_a_damaged_frame_leaves_its_neighbours_readable():
    message = write()
    start = message.tobytes().index(struct.pack("<ff", 1.0, 2.0))
    message[start] ^= 1
    sparse, dense, flagged = read(message)
    assert isinstance(sparse, Frame)
    assert isinstance(flagged, Frame)
    assert isinstance(dense, MessageError)
    assert "frame 1 (parameter 1) has a wrong checksum" in str(dense)


def test_padding_must_be_zero_even_with_a_right_checksum():
    """One frame of one sign: 1 value byte, 5 index bytes, 2 of padding."""
    writer = MessageWriter(KERNELS)
    writer.begin(STEP, PLAN)
    sparse = SparseGradient(np.array([5], np.uint32), np.array([-2.0], np.float32), 10)
    writer.add_sparse(0, sparse, Codec.named("golomb", "sign"), np.empty(1, np.float32))
    message = writer.finish().copy()
    assert message[-2:].tolist() == [0, 0]
    message[-1] = 0xFF
    checksum = zlib.crc32(message[20:40].tobytes() + message[44:].tobytes())
    message[40:44] = np.frombuffer(struct.pack("<I", checksum), np.uint8)
    (frame,) = read_message(message, STEP, PLAN, 1, KERNELS)
    assert "frame 0 has padding that is not zero" in str(frame)


@pytest.mark.parametrize("length", [0, 19, 20, 30, 44])
def test_a_short_message_is_refused(length):
    with pytest.raises(MessageError):
        read(write()[:length])


def test_bytes_behind_the_last_frame_are_refused():
    with pytest.raises(MessageError, match="4 bytes follow the last frame"):
        read(np.append(write(), np.zeros(4, np.uint8)))


@pytest.mark.parametrize(
    ("step", "plan", "frames", "text"),
    [
        (8, PLAN, 3, "is of step 7, but this rank is at 8"),
        (STEP, 1, 3, "plan abcd1234, but 00000001 here"),
        (STEP, PLAN, 2, "3 frames, but 2 were agreed"),
    ],
)
def test_what_was_not_agreed_is_named(step, plan, frames, text):
    with pytest.raises(MessageError, match=text):
        read_message(write(), step, plan, frames, KERNELS)


def test_another_version_says_what_to_do():
    message = write()
    message[2] = 2
    with pytest.raises(MessageError, match=r"wire format 2.*install one version of sparse_ring"):
        read(message)


def test_the_buffer_grows_and_is_reused():
    writer = MessageWriter(KERNELS)
    values = np.arange(100_000, dtype=np.float32)
    for _ in range(2):
        writer.begin(STEP, PLAN)
        writer.add_dense(0, values)
        writer.add_dense(1, values)
        frames = read_message(writer.finish(), STEP, PLAN, 2, KERNELS)
        assert [values_of(frame) == values.tolist() for frame in frames] == [True, True]
