import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparse_ring.encode import INDEX_CODES, VALUE_CODES, Codec, EveryIndex
from sparse_ring.errors import ConfigError, MessageError
from sparse_ring.kernels.table import kernels_for
from sparse_ring.sparse import SparseGradient

KERNELS = kernels_for()


def test_the_numbers_on_the_wire_never_change():
    assert {number: code.name for number, code in INDEX_CODES.items()} == {0: "every", 1: "golomb", 2: "bitpack"}
    assert {number: code.name for number, code in VALUE_CODES.items()} == {0: "float32", 1: "float16", 2: "sign"}


def test_an_unknown_code_lists_the_known_ones():
    with pytest.raises(ConfigError, match="indices is 'huffman', but must be one of golomb, bitpack"):
        Codec.named("huffman", "sign")
    with pytest.raises(ConfigError, match="values is 'int3', but must be one of float32, float16, sign"):
        Codec.named("golomb", "int3")


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    numel=st.integers(1, 5000),
    density=st.sampled_from([0.0, 0.001, 0.05, 0.5, 1.0]),
    indices=st.sampled_from(["golomb", "bitpack"]),
    values=st.sampled_from(["float32", "float16", "sign"]),
)
def test_receivers_see_what_the_sender_was_told(seed, numel, density, indices, values):
    generator = np.random.default_rng(seed)
    kept = np.flatnonzero(generator.random(numel) < density).astype(np.uint32)
    sparse = SparseGradient(kept, generator.standard_normal(len(kept)).astype(np.float32), numel)
    codec = Codec.named(indices, values)
    out = np.empty((codec.bound(len(kept), numel) + 3) // 4 * 4, np.uint8)
    told = np.empty(len(kept), np.float32)
    encoded = codec.encode(sparse, out, told, KERNELS)
    assert encoded.value_bytes + encoded.index_bytes <= codec.bound(len(kept), numel)

    got_values, got_indices = np.empty_like(told), np.empty_like(kept)
    codec.value.decode(out[: encoded.value_bytes], encoded.scale, got_values, KERNELS)
    payload = out[encoded.value_bytes : encoded.value_bytes + encoded.index_bytes]
    codec.index.decode(payload, numel, got_indices, KERNELS)
    assert got_indices.tolist() == kept.tolist()
    assert got_values.tobytes() == told.tobytes()
    if values == "float32":
        assert told.tobytes() == sparse.values.tobytes()
    if values == "float16":
        assert np.all(np.abs(told - sparse.values) <= np.abs(sparse.values).max(initial=0) * 2.0**-11)
    if values == "sign" and len(kept):
        assert np.array_equal(np.signbit(told), np.signbit(sparse.values))
        assert np.allclose(np.abs(told), np.abs(sparse.values).astype(np.float64).mean(), rtol=1e-6)


def test_a_dense_frame_has_all_elements_and_no_index_bits():
    indices = np.empty(3, np.uint32)
    EveryIndex().decode(np.empty(0, np.uint8), 3, indices, KERNELS)
    assert indices.tolist() == [0, 1, 2]
    with pytest.raises(MessageError, match="dense frame with 3 of 4 elements"):
        EveryIndex().decode(np.empty(0, np.uint8), 4, indices, KERNELS)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_from_the_wire_must_be_finite(value):
    payload = np.array([1.0, value], np.float32).view(np.uint8)
    with pytest.raises(MessageError, match="not finite"):
        VALUE_CODES[0].decode(payload, 1.0, np.empty(2, np.float32), KERNELS)
