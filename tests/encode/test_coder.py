"""Which code a frame gets."""

import numpy as np

from sparse_ring.encode import (
    WHOLE_NAMES,
    AdaptiveCoder,
    Coding,
    FixedCoder,
    WarmupCoder,
    largest_magnitude,
    root_mean_square,
)
from sparse_ring.kernels.table import kernels_for

KERNELS = kernels_for("auto")
CODES = [WHOLE_NAMES[name] for name in ("one1", "two2", "four4", "block8")]


def at(step, values, coder):
    coding = Coding(step=step, scale=coder.unit(values))
    return coder.choose(values, coding, KERNELS).name


def test_the_warm_up_is_exact_and_needs_room_for_it():
    coder = WarmupCoder(FixedCoder(WHOLE_NAMES["one1"]), 2)
    values = np.ones(100, np.float32)
    assert [at(step, values, coder) for step in range(3)] == ["float32", "float32", "one1"]
    assert coder.most(100, 1) == 400
    assert coder.most(100, 2) == WHOLE_NAMES["one1"].size(100)


def test_the_narrowest_code_that_is_good_enough_is_taken():
    signs = np.where(np.arange(4096) % 3, 1, -1).astype(np.float32)
    spread = np.random.default_rng(0).standard_normal(4096).astype(np.float32)
    for values, target, expected in [(signs, 0.01, "one1"), (spread, 0.2, "four4"), (spread, 0.001, "block8")]:
        assert at(0, values, AdaptiveCoder(CODES, target, 10, root_mean_square)) == expected


def test_the_choice_holds_for_a_period():
    coder = AdaptiveCoder(CODES, 0.01, 3, root_mean_square)
    signs = np.ones(4096, np.float32)
    spread = np.random.default_rng(0).standard_normal(4096).astype(np.float32)
    chosen = [at(0, signs, coder), *(at(step, spread, coder) for step in (1, 2, 3))]
    assert chosen == ["one1", "one1", "one1", "block8"]


def test_units_of_nothing_are_zero():
    nothing = np.empty(0, np.float32)
    assert largest_magnitude(nothing) == root_mean_square(nothing) == 0.0
    assert largest_magnitude(np.array([1, -3], np.float32)) == 3.0
    assert root_mean_square(np.array([3, -4], np.float32)) == np.float32(12.5**0.5)


def test_a_choice_is_kept_in_the_state():
    signs = np.ones(4096, np.float32)
    spread = np.random.default_rng(0).standard_normal(4096).astype(np.float32)
    coder, other = (WarmupCoder(AdaptiveCoder(CODES, 0.01, 10, root_mean_square), 0) for _ in range(2))
    assert at(0, signs, coder) == "one1"
    other.load_state_dict(coder.state_dict())
    assert [at(step, spread, other) for step in (1, 9, 10)] == ["one1", "one1", "block8"]
    other.load_state_dict({})
    assert at(11, signs, other) == "one1"
