"""The bytes of version 1 never change: messages of every frame kind, as hexadecimal digits in ``tests/golden``."""

from pathlib import Path

import numpy as np
import pytest

from sparse_ring.encode import INDEX_CODES, VALUE_CODES, VALUE_NAMES, Codec
from sparse_ring.kernels.table import kernels_for
from sparse_ring.message import MessageWriter, read_message
from sparse_ring.sparse import SparseGradient
from tests.contracts.kernel_cases import IMPLEMENTATIONS

GOLDEN = Path(__file__).parent.parent / "golden" / "message-v1.hex"
STEP, PLAN = 258, 0xDEADBEEF
INDICES = np.array([0, 3, 4, 77, 200, 255], np.uint32)
VALUES = np.array([0.5, -1.25, 3.0, -0.0078125, 2.0, -3.5], np.float32)
CODES_GOLDEN = GOLDEN.with_name("message-v1-codes.hex")
CODECS = [Codec.named(i, v) for i in ("golomb", "bitpack") for v in ("float32", "float16", "sign")]


def write(kernels):
    writer = MessageWriter(kernels)
    writer.begin(STEP, PLAN)
    sparse = SparseGradient(INDICES, VALUES, 256)
    decoded = np.empty(6, np.float32)
    for number, codec in enumerate(CODECS):
        writer.add_sparse(number, sparse, codec, decoded)
    writer.add_dense(6, VALUES)
    writer.add_nonfinite(7, CODECS[0])
    return writer.finish()


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_golden_message(name):
    kernels = kernels_for(name)
    golden = np.frombuffer(bytes.fromhex(GOLDEN.read_text()), np.uint8).copy()
    assert write(kernels).tobytes() == golden.tobytes()
    frames = read_message(golden, STEP, PLAN, 8, kernels)
    for frame, codec in zip(frames[:6], CODECS, strict=True):
        indices, values = np.empty(6, np.uint32), np.empty(6, np.float32)
        INDEX_CODES[frame.index_code].decode(frame.indices, 256, indices, kernels)
        VALUE_CODES[frame.value_code].decode(frame.values, frame.scale, values, kernels)
        assert indices.tolist() == INDICES.tolist()
        magnitude = np.abs(VALUES).mean(dtype=np.float64)
        expected = np.copysign(np.float32(magnitude), VALUES) if codec.value.name == "sign" else VALUES
        assert values.tolist() == expected.tolist()
    assert frames[6].values.view(np.float32).tolist() == VALUES.tolist()
    assert frames[7].nonfinite


NEWER = [
    Codec.named("bitmap", "bfloat16"),
    Codec.named("elias_fano", "int8"),
    Codec.named("block16", "int4"),
    Codec.named("bitmap", "int3"),
    Codec.named("elias_fano", "int2"),
]
SMALL = ("bfloat16", "int8")


def write_newer(kernels):
    writer = MessageWriter(kernels)
    writer.begin(STEP, PLAN)
    sparse, decoded = SparseGradient(INDICES, VALUES, 256), []
    for number, codec in enumerate(NEWER):
        decoded.append(np.empty(6, np.float32))
        writer.add_sparse(number, sparse, codec, decoded[-1])
    for number, name in enumerate(SMALL, start=len(NEWER)):
        decoded.append(np.empty(6, np.float32))
        writer.add_dense_coded(number, VALUES, VALUE_NAMES[name], decoded[-1])
    return writer.finish(), decoded


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_golden_message_of_the_codes_that_came_later(name):
    kernels = kernels_for(name)
    golden = np.frombuffer(bytes.fromhex(CODES_GOLDEN.read_text()), np.uint8).copy()
    message, said = write_newer(kernels)
    assert message.tobytes() == golden.tobytes()
    for number, frame in enumerate(read_message(golden, STEP, PLAN, 7, kernels)):
        values = np.empty(6, np.float32)
        VALUE_CODES[frame.value_code].decode(frame.values, frame.scale, values, kernels)
        assert values.tobytes() == said[number].tobytes()
        if number < len(NEWER):
            indices = np.empty(6, np.uint32)
            INDEX_CODES[frame.index_code].decode(frame.indices, 256, indices, kernels)
            assert indices.tolist() == INDICES.tolist()
        else:
            assert (frame.index_code, frame.indices.size) == (0, 0)
