import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparse_ring.encode import (
    INDEX_CHOICES,
    INDEX_CODES,
    VALUE_CODES,
    VALUE_NAMES,
    Codec,
    CodecChoice,
    EveryIndex,
    IndexCode,
)
from sparse_ring.errors import ConfigError, MessageError
from sparse_ring.kernels.table import kernels_for
from sparse_ring.sparse import SparseGradient

KERNELS = kernels_for()


def test_the_numbers_on_the_wire_never_change():
    assert {number: code.name for number, code in INDEX_CODES.items()} == {
        0: "every", 1: "golomb", 2: "bitpack", 3: "bitmap", 4: "elias_fano", 5: "block16",
        6: "interpolative",
    }  # fmt: skip
    assert {number: code.name for number, code in VALUE_CODES.items()} == {
        0: "float32", 1: "float16", 2: "sign", 3: "bfloat16", 4: "int8", 5: "int4", 6: "int3", 7: "int2",
        8: "block8", 9: "tree8", 10: "qsgd2", 11: "qsgd4", 12: "qsgd8", 13: "ternary", 14: "four4", 15: "two2", 16: "one1",
        32: "nothing",
    }  # fmt: skip


def test_an_unknown_code_lists_the_known_ones():
    with pytest.raises(
        ConfigError,
        match=r"indices is 'huffman', but must be one of golomb, bitpack, bitmap, elias_fano, block16, interpolative, "
        r"auto\.$",
    ):
        Codec.named("huffman", "sign")
    with pytest.raises(
        ConfigError, match="values is 'int5', but must be one of float32, float16, sign, bfloat16, int8, "
    ):
        CodecChoice.named("auto", "int5")


def test_a_choice_is_not_a_code():
    with pytest.raises(
        ConfigError, match=r"indices is 'auto', but must be one of golomb, bitpack, .*, interpolative\.$"
    ):
        Codec.named("auto", "sign")


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    numel=st.integers(1, 5000),
    density=st.sampled_from([0.0, 0.001, 0.05, 0.5, 1.0]),
    indices=st.sampled_from(list(INDEX_CHOICES)),
    values=st.sampled_from(list(VALUE_NAMES)),
)
def test_receivers_see_what_the_sender_was_told(seed, numel, density, indices, values):
    generator = np.random.default_rng(seed)
    kept = np.flatnonzero(generator.random(numel) < density).astype(np.uint32)
    sparse = SparseGradient(kept, generator.standard_normal(len(kept)).astype(np.float32), numel)
    codec = CodecChoice.named(indices, values).choose(sparse, KERNELS)
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
    if values == "bfloat16":
        assert np.all(np.abs(told - sparse.values) <= np.abs(sparse.values) * 2.0**-8)
    if values != "float16" and len(kept):
        assert np.array_equal(np.signbit(told), np.signbit(sparse.values))
    if values == "sign" and len(kept):
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


SUPPORTS = {
    "sparse": lambda generator: np.flatnonzero(generator.random(1 << 18) < 0.01),
    "every other": lambda generator: np.arange(0, 1 << 14, 2),
    "most": lambda generator: np.flatnonzero(generator.random(1 << 14) < 0.7),
    "one run": lambda generator: np.arange(500, 2000),
    "runs far apart": lambda generator: (np.arange(8)[:, None] * 30_000 + np.arange(40)).reshape(-1),
    "clusters": lambda generator: np.unique(
        (generator.normal(0, 50, (40, 100)) + 6000 * np.arange(1, 41)[:, None]).astype(int)
    ),
    "one": lambda generator: np.array([7]),
    "none": lambda generator: np.array([], int),
}


@pytest.mark.parametrize("shape", SUPPORTS)
@pytest.mark.parametrize("kernels", ["reference", "scalar", "auto"])
def test_auto_takes_the_fewest_bytes(shape, kernels):
    kernels, numel = kernels_for(kernels), 1 << 18
    indices = SUPPORTS[shape](np.random.default_rng(5)).astype(np.uint32)
    written = {}
    for name, code in INDEX_CHOICES.items():
        if isinstance(code, IndexCode):
            out = np.empty(code.bound(len(indices), numel), np.uint8)
            written[name] = code.encode(indices, numel, out, kernels)
            assert code.size(indices, numel, kernels) == written[name]
    chosen = INDEX_CHOICES["auto"].choose(indices, numel, kernels)
    assert written[chosen.name] == min(written.values())


def test_auto_finds_a_use_for_each_code_that_is_not_there_for_its_speed():
    """Interpolative has no header, and so takes less than elias_fano and block16 where these were the smallest: few positions."""
    generator = np.random.default_rng(6)
    cases = {
        "golomb": (np.flatnonzero(generator.random(1 << 18) < 0.01), 1 << 18),
        "bitpack": (np.cumsum(1 + generator.integers(0, 128, 4000)), 1 << 18),
        "bitmap": (np.flatnonzero(generator.random(1 << 14) < 0.55), 1 << 14),
        "interpolative": (
            np.flatnonzero(generator.random(1 << 18) < 0.3 * (np.arange(1 << 18) // 512 % 8 == 0)),
            1 << 18,
        ),
    }
    names = {
        wanted: INDEX_CHOICES["auto"].choose(i.astype(np.uint32), n, KERNELS).name for wanted, (i, n) in cases.items()
    }
    assert names == {name: name for name in cases}


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_levels_of_a_truncated_tail_are_near(bits):
    """The largest 1 % of normal values: the relative squared error is what the results page states."""
    values = np.sort(np.random.default_rng(7).standard_normal(1 << 20).astype(np.float32))[-5000:]
    code, decoded = VALUE_NAMES[f"int{bits}"], np.empty(5000, np.float32)
    code.encode(values, np.empty(code.size(5000), np.uint8), decoded, KERNELS)
    error = np.square(values - decoded).sum() / np.square(values).sum()
    assert error < {2: 4e-3, 3: 1.3e-3, 4: 4e-4, 8: 4e-6}[bits]


@settings(deadline=None)
@given(
    numel=st.integers(1, 1 << 31),
    data=st.data(),
    name=st.sampled_from(["golomb", "bitpack", "bitmap", "elias_fano", "block16", "interpolative", "auto"]),
)
def test_the_room_for_a_count_is_enough_for_any_smaller_one(numel, data, name):
    most = data.draw(st.integers(0, min(numel, 1 << 20)))
    count = data.draw(st.integers(0, most))
    room = CodecChoice.named(name, "int3").most(most, numel)
    codes = CodecChoice.named(name, "int3").index
    for code in codes.codes if name == "auto" else [codes]:
        assert Codec(code, VALUE_NAMES["int3"]).bound(count, numel) <= room
