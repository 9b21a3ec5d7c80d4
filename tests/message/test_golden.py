"""The bytes of version 1 never change: a message of every frame kind, as hexadecimal digits in ``tests/golden``."""

from pathlib import Path

import numpy as np
import pytest

from sparse_ring.encode import INDEX_CODES, VALUE_CODES, Codec
from sparse_ring.kernels.table import kernels_for
from sparse_ring.message import MessageWriter, read_message
from sparse_ring.sparse import SparseGradient

GOLDEN = Path(__file__).parent.parent / "golden" / "message-v1.hex"
STEP, PLAN = 258, 0xDEADBEEF
INDICES = np.array([0, 3, 4, 77, 200, 255], np.uint32)
VALUES = np.array([0.5, -1.25, 3.0, -0.0078125, 2.0, -3.5], np.float32)
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


@pytest.mark.parametrize("name", ["reference", "scalar", "avx2"])
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
