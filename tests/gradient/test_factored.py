"""Matrices as products of thin factors."""

import numpy as np
import pytest

from sparse_ring.errors import MessageError
from sparse_ring.gradient import OptimizerStep, Pipeline, pipeline_of
from sparse_ring.recipe import PowerSGD
from tests.helpers import run_ranks

F = np.float32


def parameter_of(session, recipe, shape=(40, 30)):
    shared = Pipeline(1, session.kernels, session.exchanges, "", session.rank, session.size)
    return pipeline_of(shared, recipe, 0, "fc.weight", shape, compressed=True, in_message=False)


def matrix(seed, rank):
    generator = np.random.default_rng(seed)
    return (generator.standard_normal((40, rank)) @ generator.standard_normal((rank, 30))).astype(F)


@pytest.mark.parametrize("average", [True, False])
def test_a_matrix_of_that_rank_comes_through_whole(average):
    """All ranks' gradients span the same rows, so their sum has rank 2 and one iteration finds it."""

    def job(session):
        parameter = parameter_of(session, PowerSGD(rank=2))
        gradient = (matrix(0, 2) * (session.rank + 1)).reshape(-1)
        return session.submit(parameter.operation(gradient, OptimizerStep(0, average=average))).wait()

    for found in run_ranks(3, job):
        np.testing.assert_allclose(found, matrix(0, 2).reshape(-1) * (2 if average else 6), rtol=1e-3, atol=1e-4)


def test_the_factor_of_the_last_step_makes_the_next_approximation_better():
    def job(session):
        parameter, losses = parameter_of(session, PowerSGD(rank=2)), []
        for step in range(6):
            parameter.feedback.accumulated[:] = 0
            gradient = (matrix(0, 2) + 0.2 * matrix(1, 20)).reshape(-1)
            whole = gradient.copy()
            found = session.submit(parameter.operation(gradient, OptimizerStep(step))).wait()
            losses.append(float(np.linalg.norm(whole - found)))
        return losses

    (losses,) = run_ranks(1, job)
    best = np.linalg.svd(matrix(0, 2) + 0.2 * matrix(1, 20), compute_uv=False)[2:]
    assert losses[-1] < losses[0]
    assert losses[-1] == pytest.approx(float(np.linalg.norm(best)), rel=1e-3)


def test_convolutions_are_matrices_of_their_filters():
    recipe = PowerSGD(rank=2)
    assert recipe.compresses((64, 32, 3, 3))
    assert not recipe.compresses((2, 700))
    assert not recipe.compresses((4096,))


def test_a_factor_that_vanished_starts_afresh():
    """Zero gradients leave nothing to iterate on; the next gradient is approximated all the same."""

    def job(session):
        parameter = parameter_of(session, PowerSGD(rank=2))
        session.submit(parameter.operation(np.zeros(1200, F), OptimizerStep(0))).wait()
        return session.submit(parameter.operation(matrix(0, 2).reshape(-1), OptimizerStep(1))).wait()

    np.testing.assert_allclose(run_ranks(1, job)[0], matrix(0, 2).reshape(-1), rtol=1e-3, atol=1e-4)


def test_state_of_another_rank_number_is_refused():
    def job(session):
        state = parameter_of(session, PowerSGD(rank=2)).state_dict()
        with pytest.raises(ValueError, match="factor has 60 elements, but 120 at rank 4"):
            parameter_of(session, PowerSGD(rank=4)).load_state_dict(state)
        return True

    assert run_ranks(1, job) == [True]


def test_one_huge_gradient_does_not_stop_all_that_come_after_it():
    def job(session):
        parameter = parameter_of(session, PowerSGD(rank=2))
        session.submit(parameter.operation(np.full(1200, 1e38, F), OptimizerStep(0))).wait()
        return session.submit(parameter.operation(matrix(0, 2).reshape(-1), OptimizerStep(1))).wait()

    for found in run_ranks(2, job):
        np.testing.assert_allclose(found, matrix(0, 2).reshape(-1), rtol=1e-3, atol=1e-4)


def test_ranks_at_different_steps_tell_each_other():
    def job(session):
        parameter = parameter_of(session, PowerSGD(rank=2))
        with pytest.raises(MessageError, match="is of step"):
            session.submit(parameter.operation(matrix(0, 2).reshape(-1), OptimizerStep(session.rank))).wait()
        return True

    assert run_ranks(2, job) == [True, True]
