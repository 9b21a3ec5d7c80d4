import numpy as np
import pytest

from sparse_ring.error_feedback import Residual
from sparse_ring.kernels.table import kernels_for
from sparse_ring.select import SampledTopK, Scratch, sampled
from sparse_ring.sparse import SparseGradient
from tests.select.test_selectors import KINDS, gradients_like, largest

F = np.float32
KERNELS = kernels_for()


def run(selector, gradients, keep, feedback=None, scratch=None):
    """Select and send step by step; yields what was selected, and the residual before it was sent."""
    feedback, scratch = feedback or Residual(50_000, KERNELS), scratch or Scratch()
    for gradient in gradients:
        sparse = selector.select(feedback, gradient, 0.0, False, keep, KERNELS, scratch)
        sparse = SparseGradient(sparse.indices.copy(), sparse.values.copy(), gradient.size)
        yield sparse, feedback.accumulated.copy()
        feedback.sent(sparse)


@pytest.mark.parametrize("keep", [8, 300, 5000])
@pytest.mark.parametrize("kind", KINDS)
def test_the_count_stays_near_what_is_wanted_and_what_is_sent_is_the_largest(kind, keep):
    selector = SampledTopK()
    for sparse, accumulated in run(selector, gradients_like(kind, 50_000, 40), keep):
        there_are = np.count_nonzero(accumulated)
        assert min(0.8 * keep, there_are) <= sparse.count <= selector.most(keep, 50_000) == int(1.3 * keep)
        # Of equal ones at the border some may be left out.
        sizes = np.sort(np.abs(accumulated))[::-1]
        assert np.sort(np.abs(sparse.values))[::-1].tolist() == sizes[: sparse.count].tolist()
        assert sparse.values.tobytes() == accumulated[sparse.indices].tobytes()


def test_most_is_never_less_than_wanted_nor_more_than_there_are():
    selector = SampledTopK()
    assert [selector.most(keep, 100) for keep in (1, 3, 10, 90, 100)] == [1, 3, 13, 100, 100]


def test_a_small_parameter_is_selected_exactly():
    gradient = np.random.default_rng(0).standard_normal(50_000).astype(F)
    ((sparse, accumulated),) = run(SampledTopK(), [gradient], 31)
    assert sparse.indices.tolist() == largest(accumulated, 31).tolist()


@pytest.mark.parametrize(
    ("sample", "rest"),
    [(5.0, 1.0), (1.0, 5.0), (0.0, 1.0), (3e38, 1e-30)],
    ids=["threshold too high", "too low", "sample of zeros", "far too high"],
)
def test_a_sample_that_is_unlike_the_rest_does_no_harm(sample, rest):
    """Every element that the first sample looks at is of another size."""
    gradient = (np.random.default_rng(0).uniform(0.5, 1, 50_000) * rest).astype(F)
    gradient[:: sampled.STRIDE] = sample
    ((sparse, accumulated),) = run(SampledTopK(), [gradient], 2000)
    assert 1600 <= sparse.count <= 2600
    border = np.abs(sparse.values).min()
    assert np.count_nonzero(accumulated > border) < sparse.count


def test_zeros_are_never_sent():
    for sparse, _ in run(SampledTopK(), [np.zeros(50_000, F), np.eye(1, 50_000, 42, dtype=F)[0]], 2000):
        assert 0 not in sparse.values
    assert sparse.indices.tolist() == [42]


def test_what_overflows_is_sent_so_that_it_is_found():
    gradient = np.full(50_000, 1e38, F)
    gradient[7] = np.inf
    ((sparse, _),) = run(SampledTopK(), [gradient], 2000)
    assert np.inf in sparse.values


def test_state_says_where_the_next_sample_starts():
    gradients = list(gradients_like("noise", 50_000, 8))
    straight, feedback = SampledTopK(), Residual(50_000, KERNELS)
    list(run(straight, gradients[:4], 2000, feedback))
    resumed, other = SampledTopK(), Residual(50_000, KERNELS)
    resumed.load_state_dict(straight.state_dict())
    other.load_state_dict(feedback.state_dict())
    went_on = [sparse.indices.tobytes() for sparse, _ in run(straight, gradients[4:], 2000, feedback)]
    assert went_on == [sparse.indices.tobytes() for sparse, _ in run(resumed, gradients[4:], 2000, other)]
    assert straight.state_dict() == resumed.state_dict() == {"turn": 8}
    resumed.load_state_dict({})
    assert resumed.state_dict() == {"turn": 0}
