"""Codes of whole gradients as recipes use them: told about a frame, written into a message and read from it."""

import numpy as np
import pytest

from sparse_ring.encode import VALUE_CODES, VALUE_NAMES, WHOLE_NAMES, CodecChoice, Coding, Nothing, ValueCode
from sparse_ring.errors import ConfigError
from sparse_ring.kernels.table import kernels_for
from sparse_ring.message import MessageWriter, read_message

KERNELS = kernels_for()
TOLD = ["qsgd2", "qsgd4", "qsgd8", "ternary", "two2"]
VALUES = np.random.default_rng(1).standard_normal(10_000).astype(np.float32)


def encode(code: ValueCode, values=VALUES):
    out, decoded = np.empty(code.size(len(values)), np.uint8), np.empty_like(values)
    scale = code.encode(values, out, decoded, KERNELS)
    return out, decoded, scale


def test_they_are_no_codes_of_kept_elements():
    assert not set(WHOLE_NAMES) & set(VALUE_NAMES)
    others = set(VALUE_CODES) - {code.identifier for code in (*WHOLE_NAMES.values(), *VALUE_NAMES.values())}
    assert others == {Nothing.identifier}
    with pytest.raises(ConfigError, match="values is 'qsgd4', but must be one of float32, "):
        CodecChoice.named("golomb", "qsgd4")


def test_bits_of_a_value():
    bits = {name: 8 * code.size(1 << 20) / (1 << 20) for name, code in WHOLE_NAMES.items()}
    assert bits == pytest.approx(
        {
            "block8": 8.125, "tree8": 8.0078125, "qsgd2": 2.0625, "qsgd4": 4.0625, "qsgd8": 8.0625, "ternary": 1.6,
            "four4": 4.0, "two2": 2.0, "one1": 1.015625,
        },
        rel=1e-4,
    )  # fmt: skip


@pytest.mark.parametrize("name", WHOLE_NAMES)
def test_a_frame_of_it_in_a_message(name):
    code = WHOLE_NAMES[name].given(Coding(seed=3, step=4, parameter=1, scale=2.0))
    writer, decoded = MessageWriter(KERNELS), np.empty_like(VALUES)
    writer.begin(4, 9)
    writer.add_dense(0, VALUES)
    encoded = writer.add_dense_coded(1, VALUES, code, decoded)
    frame = read_message(writer.finish(), 4, 9, 2, KERNELS)[1]
    assert (frame.count, frame.index_code, frame.value_code) == (10_000, 0, WHOLE_NAMES[name].identifier)
    assert encoded.scale == frame.scale == (2.0 if name in ("ternary", "two2") else 1.0)
    seen = np.empty_like(VALUES)
    VALUE_CODES[frame.value_code].decode(frame.values, frame.scale, seen, KERNELS)
    assert seen.tobytes() == decoded.tobytes()


@pytest.mark.parametrize("name", TOLD)
def test_a_code_that_was_told_nothing_says_so(name):
    with pytest.raises(ValueError, match=rf"{name} needs to be told about the frame: use what {name}.given\(Coding"):
        encode(WHOLE_NAMES[name])


@pytest.mark.parametrize("name", ["ternary", "two2"])
def test_a_missing_scale_is_missed(name):
    with pytest.raises(ConfigError, match=f"scale is None, but must be a number: {name} does not measure it"):
        WHOLE_NAMES[name].given(Coding(seed=1))


def test_codes_that_need_nothing_stay_what_they_are():
    for name, code in (VALUE_NAMES | WHOLE_NAMES).items():
        assert (code.given(Coding(scale=1.0)) is code) == (name not in TOLD)


@pytest.mark.parametrize("scale", [-1.0, float("nan"), float("inf"), 1e39])
def test_a_scale_is_a_magnitude(scale):
    with pytest.raises(ConfigError, match=r"^scale is .*, but must be a finite float32 of at least 0\.$"):
        Coding(scale=scale)


def test_a_scale_of_minus_zero_is_zero():
    code = WHOLE_NAMES["ternary"].given(Coding(scale=-0.0))
    out, decoded, scale = encode(code)
    code.decode(out, scale, decoded, KERNELS)
    assert not decoded.any()


def test_seed_step_and_parameter_each_change_the_randomness():
    codings = [Coding(), Coding(seed=1), Coding(step=1), Coding(parameter=1), Coding(seed=-1), Coding(seed=1, step=1)]
    assert len({coding.key for coding in codings}) == len(codings)
    payloads = [encode(WHOLE_NAMES["qsgd2"].given(coding))[0].tobytes() for coding in codings]
    assert len(set(payloads)) == len(codings)
    assert encode(WHOLE_NAMES["qsgd2"].given(Coding(seed=1)))[0].tobytes() == payloads[1]


# Squared error over squared values, of 10,000 normal ones.
MOST = {"block8": 6e-5, "tree8": 4e-4, "qsgd8": 1e-2, "qsgd4": 3, "qsgd2": 30, "four4": 0.02, "one1": 0.5, "two2": 0.8}


@pytest.mark.parametrize("name", MOST)
def test_what_normal_values_lose(name):
    decoded = encode(WHOLE_NAMES[name].given(Coding(scale=1.5)))[1]
    error = np.square(VALUES - decoded).sum() / np.square(VALUES).sum()
    assert MOST[name] / 4 < error < MOST[name]
