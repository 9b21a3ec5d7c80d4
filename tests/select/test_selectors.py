import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparse_ring.error_feedback import Residual
from sparse_ring.kernels.table import kernels_for
from sparse_ring.select import ExactTopK, PredictedThreshold, Scratch
from sparse_ring.select.predicted import corrected_threshold, estimate_threshold

F = np.float32
KERNELS = kernels_for()


def select(selector, gradient, keep, feedback=None):
    feedback = feedback or Residual(gradient.size, KERNELS)
    sparse = selector.select(feedback, gradient, 0.0, False, keep, KERNELS, Scratch())
    return sparse, feedback


@settings(deadline=None)
@given(seed=st.integers(0, 2**32 - 1), numel=st.integers(1, 3000), fraction=st.floats(0, 1), ties=st.booleans())
def test_exact_selection_is_a_stable_sort(seed, numel, fraction, ties):
    generator = np.random.default_rng(seed)
    gradient = generator.standard_normal(numel).astype(F)
    if ties:
        gradient = np.round(gradient)
    keep = max(1, int(fraction * numel))
    sparse, _ = select(ExactTopK(), gradient, keep)
    order = np.argsort(-np.abs(gradient), kind="stable")[:keep]
    expected = np.sort(order[gradient[order] != 0])
    assert sparse.indices.tolist() == expected.tolist()
    assert sparse.values.tobytes() == gradient[expected].tobytes()


@pytest.mark.parametrize("selector", [ExactTopK, PredictedThreshold])
def test_zeros_are_never_sent(selector):
    sparse, _ = select(selector(), np.zeros(100, F), 10)
    assert sparse.count == 0
    sparse, _ = select(selector(), np.eye(1, 100, 42, dtype=F)[0], 10)
    assert sparse.indices.tolist() == [42]


def test_a_sudden_flood_is_capped_by_an_exact_selection():
    selector = PredictedThreshold()
    generator = np.random.default_rng(0)
    small = generator.standard_normal(10_000).astype(F)
    _, feedback = select(selector, small, 100)
    flood = (1000 * small).astype(F)
    sparse, _ = select(selector, flood, 100, feedback)
    accumulated = feedback.accumulated
    assert sparse.count == 100
    assert np.abs(sparse.values).min() >= np.sort(np.abs(accumulated))[-100]


def test_when_nothing_reaches_the_threshold_the_largest_is_sent():
    selector = PredictedThreshold()
    generator = np.random.default_rng(0)
    gradient = generator.standard_normal(10_000).astype(F)
    select(selector, gradient, 100)
    sparse, _ = select(selector, (gradient * 1e-6).astype(F), 100)
    assert sparse.indices.tolist() == [int(np.abs(gradient).argmax())]
    sparse, _ = select(selector, (gradient * 1e-6).astype(F), 100)
    assert sparse.count > 50


def test_another_count_starts_from_a_fresh_estimate():
    selector = PredictedThreshold()
    gradient = np.random.default_rng(0).standard_normal(4000).astype(F)
    select(selector, gradient, 1000)
    sparse, _ = select(selector, gradient, 40)
    assert sparse.count == 40


def test_the_estimate_is_exact_for_small_parameters_and_close_for_large_ones():
    gradient = np.random.default_rng(0).standard_normal(4096).astype(F)
    assert np.count_nonzero(np.abs(gradient) >= estimate_threshold(gradient, 41)) == 41
    gradient = np.random.default_rng(0).standard_normal(1_000_000).astype(F)
    assert 5_000 < np.count_nonzero(np.abs(gradient) >= estimate_threshold(gradient, 10_000)) < 20_000


def test_the_correction_moves_towards_the_wanted_count_and_stays_positive():
    assert corrected_threshold(1.0, 200, 100, 10_000) > 1.0
    assert corrected_threshold(1.0, 50, 100, 10_000) < 1.0
    assert corrected_threshold(1.0, 100, 100, 10_000) == 1.0
    assert corrected_threshold(1e-38, 1, 100, 10_000) > 0.0


def test_the_threshold_survives_a_checkpoint():
    selector, other = PredictedThreshold(), PredictedThreshold()
    gradient = np.random.default_rng(0).standard_normal(10_000).astype(F)
    _, feedback = select(selector, gradient, 100)
    other.load_state_dict(selector.state_dict())
    assert other.threshold == selector.threshold
    twin = Residual(10_000, KERNELS)
    twin.load_state_dict(feedback.state_dict())
    assert select(selector, gradient, 100, feedback)[0].count == select(other, gradient, 100, twin)[0].count
    other.load_state_dict({})
    assert other.threshold is None


def test_a_selector_without_state_refuses_one():
    with pytest.raises(ValueError, match="ExactTopK keeps no state, but threshold was given"):
        ExactTopK().load_state_dict({"threshold": 1.0})
