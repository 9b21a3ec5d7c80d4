import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparse_ring.error_feedback import MomentumResidual, Residual
from sparse_ring.kernels.table import kernels_for
from sparse_ring.select import ExactTopK, PredictedThreshold, Scratch
from sparse_ring.select.predicted import estimate_threshold
from sparse_ring.sparse import SparseGradient

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


def test_when_nothing_reaches_the_threshold_the_largest_are_sent():
    selector = PredictedThreshold()
    gradient = np.random.default_rng(0).standard_normal(10_000).astype(F)
    select(selector, gradient, 100)
    sparse, _ = select(selector, (gradient * 1e-6).astype(F), 100)
    assert sparse.indices.tolist() == np.sort(np.argsort(-np.abs(gradient), kind="stable")[:100]).tolist()


def test_a_matrix_whose_width_is_a_power_of_two_is_sampled_in_all_columns():
    """Two columns of zeros (dead inputs) must not be all that the sample sees."""
    matrix = np.random.default_rng(0).standard_normal((2048, 2048)).astype(F)
    matrix[:, [0, 1024]] = 0
    accumulated = matrix.reshape(-1)
    keep = accumulated.size // 16
    assert 0.8 < np.count_nonzero(np.abs(accumulated) >= estimate_threshold(accumulated, keep)) / keep < 1.25


def gradients_like(kind, size, steps):
    """Streams on which a controller can fail: noise, a mean with noise, heavy tails, decay, a sudden drop, growth."""
    generator = np.random.default_rng(3)
    mean, scales = generator.standard_normal(size), np.exp(1.5 * generator.standard_normal(size))
    for step in range(steps):
        noise = generator.standard_normal(size)
        yield {
            "noise": noise,
            "mean and noise": 0.3 * mean + noise,
            "heavy tails": np.clip(generator.standard_cauchy(size), -1e4, 1e4),
            "decay": scales * noise * 0.97**step,
            "drop": scales * noise * (1.0 if step < 60 else 0.1),
            "growth": noise * 1.02**step,
        }[kind].astype(F)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("kind", ["noise", "mean and noise", "heavy tails", "decay", "drop", "growth"])
def test_the_density_holds_step_by_step(kind, momentum):
    """k = 500 of 50,000: the mean within 15 %, few steps under half, few that need an exact selection."""
    selector, feedback = PredictedThreshold(), MomentumResidual(50_000, KERNELS)
    counts, exact, scratch = [], 0, Scratch()
    for gradient in gradients_like(kind, 50_000, 160):
        predicted = selector.threshold
        sparse = selector.select(feedback, gradient, momentum, False, 500, KERNELS, scratch)
        exact += predicted is not None and float(np.abs(sparse.values).min()) > np.float32(predicted) * 1.01
        feedback.sent(SparseGradient(sparse.indices.copy(), sparse.values.copy(), 50_000))
        counts.append(sparse.count)
    shares = np.array(counts[40:]) / 500
    assert 0.85 < shares.mean() < 1.15
    assert np.mean(shares < 0.5) <= 0.10
    assert exact <= 0.25 * len(counts)


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


def test_the_correction_moves_towards_the_wanted_count():
    gradient = np.linspace(1, 2, 1000).astype(F)
    for factor, moves in ((0.99, 1), (1.001, -1)):
        selector = PredictedThreshold()
        select(selector, gradient, 100)
        before = selector.threshold = float(selector.threshold) * factor
        count = select(selector, gradient, 100)[0].count
        assert np.sign(count - 100) == moves
        assert np.sign(selector.threshold - before) == moves
        assert np.sign(selector.drift) == moves


def test_the_threshold_survives_a_checkpoint():
    selector, other = PredictedThreshold(), PredictedThreshold()
    gradient = np.random.default_rng(0).standard_normal(10_000).astype(F)
    _, feedback = select(selector, gradient, 100)
    other.load_state_dict(selector.state_dict())
    assert (other.threshold, other.drift) == (selector.threshold, selector.drift)
    twin = Residual(10_000, KERNELS)
    twin.load_state_dict(feedback.state_dict())
    assert select(selector, gradient, 100, feedback)[0].count == select(other, gradient, 100, twin)[0].count
    other.load_state_dict({})
    assert other.threshold is None


def test_a_selector_without_state_refuses_one():
    with pytest.raises(ValueError, match="ExactTopK keeps no state, but threshold was given"):
        ExactTopK().load_state_dict({"threshold": 1.0})
