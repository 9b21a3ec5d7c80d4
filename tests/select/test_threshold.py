import numpy as np

from sparse_ring.error_feedback import Residual
from sparse_ring.kernels.table import kernels_for
from sparse_ring.select import FixedThreshold, Scratch
from tests.select.test_selectors import largest

F = np.float32
KERNELS = kernels_for()


def select(gradient, threshold, keep):
    feedback = Residual(gradient.size, KERNELS)
    return FixedThreshold(threshold).select(feedback, gradient, 0.0, False, keep, KERNELS, Scratch())


def test_all_that_reach_the_threshold_are_sent():
    gradient = np.array([0.5, -1.0, 0.999, 3.0, 0.0, -0.2], F)
    sparse = select(gradient, 1.0, keep=3)
    assert sparse.indices.tolist() == [1, 3]
    assert sparse.values.tolist() == [-1, 3]


def test_none_where_none_reaches_it():
    assert select(np.ones(1000, F), 1.5, keep=10).count == 0


def test_the_largest_where_too_many_do():
    gradient = np.random.default_rng(0).standard_normal(20_000).astype(F)
    for keep in (1, 30, 5000):
        assert select(gradient, 0.01, keep).indices.tolist() == largest(gradient, keep).tolist()
    assert FixedThreshold(1.0).most(30, 20_000) == 30
