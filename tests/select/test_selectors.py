import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparse_ring.error_feedback import MomentumResidual, Residual
from sparse_ring.kernels.table import kernels_for
from sparse_ring.select import ExactTopK, Scratch, topk
from sparse_ring.sparse import SparseGradient

F = np.float32
KERNELS = kernels_for()


def select(selector, gradient, keep, feedback=None):
    feedback = feedback or Residual(gradient.size, KERNELS)
    sparse = selector.select(feedback, gradient, 0.0, False, keep, KERNELS, Scratch())
    return sparse, feedback


def largest(array, keep):
    """Positions of the largest magnitudes, of equal ones the first, zeros left out."""
    sizes = np.abs(array)
    border = np.partition(sizes, -keep)[-keep]
    above, at = np.flatnonzero(sizes > border), np.flatnonzero(sizes == border)
    found = np.sort(np.concatenate([above, at[: keep - len(above)]]))
    return found[array[found] != 0]


@settings(deadline=None)
@given(seed=st.integers(0, 2**32 - 1), numel=st.integers(1, 3000), fraction=st.floats(0, 1), ties=st.booleans())
def test_the_first_selection_is_exact(seed, numel, fraction, ties):
    generator = np.random.default_rng(seed)
    gradient = generator.standard_normal(numel).astype(F)
    if ties:
        gradient = np.round(gradient)
    keep = max(1, int(fraction * numel))
    sparse, _ = select(ExactTopK(), gradient, keep)
    expected = largest(gradient, keep)
    assert sparse.indices.tolist() == expected.tolist()
    assert sparse.values.tobytes() == gradient[expected].tobytes()


def test_zeros_are_never_sent():
    for numel in (100, 10_000):
        selector = ExactTopK()
        for _ in range(3):
            assert select(selector, np.zeros(numel, F), 10)[0].count == 0
        for _ in range(3):
            assert select(selector, np.eye(1, numel, 42, dtype=F)[0], 10)[0].indices.tolist() == [42]


def gradients_like(kind, size, steps):
    """Streams on which a guess can fail: noise, a mean with noise, heavy tails, decay, a sudden drop, a flood, growth, ties."""
    generator = np.random.default_rng(3)
    mean, scales = generator.standard_normal(size), np.exp(1.5 * generator.standard_normal(size))
    for step in range(steps):
        noise = generator.standard_normal(size)
        yield {
            "noise": noise,
            "mean and noise": 0.3 * mean + noise,
            "nearly constant": mean + 0.001 * noise,
            "heavy tails": np.clip(generator.standard_cauchy(size), -1e4, 1e4),
            "decay": scales * noise * 0.97**step,
            "drop": scales * noise * (1.0 if step < 50 else 1e-6),
            "flood": scales * noise * (1.0 if step < 50 else 1e6),
            "growth": noise * 1.02**step,
            "ties": np.round(noise),
            "mostly zeros": np.where(np.abs(noise) > 3.2, noise, 0.0) * (step % 3 == 0),
        }[kind].astype(F)


KINDS = [
    "noise", "mean and noise", "nearly constant", "heavy tails", "decay", "drop", "flood", "growth", "ties", "mostly zeros",
]  # fmt: skip


@pytest.mark.parametrize("keep", [8, 300, 20_000])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("kind", KINDS)
def test_every_step_is_exact_and_few_need_more_than_one_pass(kind, momentum, keep, monkeypatch):
    passes = []
    whole = topk.select_largest

    def counted(*arguments):
        passes.append(1)
        return whole(*arguments)

    monkeypatch.setattr(topk, "select_largest", counted)
    size, steps = 50_000, 100
    selector, feedback, scratch = ExactTopK(), MomentumResidual(size, KERNELS), Scratch()
    for gradient in gradients_like(kind, size, steps):
        sparse = selector.select(feedback, gradient, momentum, False, keep, KERNELS, scratch)
        expected = largest(feedback.accumulated, keep)
        assert np.array_equal(sparse.indices, expected)
        assert sparse.values.tobytes() == feedback.accumulated[expected].tobytes()
        feedback.sent(SparseGradient(sparse.indices.copy(), sparse.values.copy(), size))
    # Ties and bursts cannot be foreseen.
    assert len(passes) <= (steps if kind in ("ties", "mostly zeros") else 0.2 * steps)


@pytest.mark.parametrize("first", [0, 3])
def test_what_overflows_is_forgotten(first):
    """The pipeline drops it; the steps after select as if nothing had been."""
    selector, feedback, scratch = ExactTopK(), Residual(20_000, KERNELS), Scratch()
    generator = np.random.default_rng(0)
    for step in range(8):
        gradient = generator.standard_normal(20_000).astype(F)
        if step in (first, first + 1):
            gradient[:40] = 3e38
        with np.errstate(over="ignore"):
            sparse = selector.select(feedback, gradient, 0.0, False, 20, KERNELS, scratch)
        if np.isfinite(sparse.values).all():
            assert sparse.indices.tolist() == largest(feedback.accumulated, 20).tolist()
            if step != first:
                feedback.sent(SparseGradient(sparse.indices.copy(), sparse.values.copy(), 20_000))
        else:
            assert feedback.drop_nonfinite() == 40


def test_another_count_starts_afresh():
    selector = ExactTopK()
    gradient = np.random.default_rng(0).standard_normal(8000).astype(F)
    select(selector, gradient, 1000)
    sparse, _ = select(selector, gradient, 40)
    assert sparse.indices.tolist() == largest(gradient, 40).tolist()


def test_a_selector_without_state_refuses_one():
    with pytest.raises(ValueError, match="ExactTopK keeps no state, but threshold was given"):
        ExactTopK().load_state_dict({"threshold": 1.0})
