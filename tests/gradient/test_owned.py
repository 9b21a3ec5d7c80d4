"""Parts with owners: who adds what, and what happens where a part is damaged."""

import numpy as np
import pytest

from sparse_ring.errors import MessageError
from sparse_ring.gradient import OptimizerStep, Pipeline, pipeline_of
from sparse_ring.gradient.owned import majority
from sparse_ring.recipe import QSGD, Int8, OneBit, SignSGD, TwoBit
from tests.helpers import run_ranks

F = np.float32


def parameter_of(session, recipe, shape=(40, 30)):
    shared = Pipeline(1, session.kernels, session.exchanges, "", session.rank, session.size)
    return pipeline_of(shared, recipe, 0, "fc.weight", shape, compressed=True, in_message=True)


def floats(*values):
    return np.array(values, F)


def test_most_ranks_decide():
    votes = [floats(1, 2, -1, -3), floats(-5, 1, -1, 2), floats(1, 1, 4, -1)]
    assert majority(votes, 4, 0).tolist() == [1, 1, -1, -1]


def test_where_votes_are_even_the_lot_falls_on_one_rank():
    votes = [floats(1, -1), floats(-1, 1)]
    assert majority(votes, 2, 0).tolist() == [1, -1]
    assert majority(votes, 2, 1).tolist() == [-1, 1]


def test_a_rank_without_a_finite_gradient_has_no_vote():
    assert majority([None, floats(-1, 2)], 2, 0).tolist() == [-1, 1]


def test_where_no_gradient_is_finite_nothing_moves():
    def job(session):
        gradient = np.full(1200, np.nan, F)
        return session.submit(parameter_of(session, SignSGD()).operation(gradient, OptimizerStep(0))).wait().any()

    assert run_ranks(2, job) == [False, False]


def test_signs_of_three_ranks_are_voted_on():
    def job(session):
        gradient = np.where(np.arange(1200) % 3 == session.rank, -1, 1).astype(F) * (session.rank + 1)
        gradient[:600] = -5
        operation = parameter_of(session, SignSGD()).operation(gradient, OptimizerStep(0))
        return session.submit(operation).wait().tolist()

    assert run_ranks(3, job) == [[-1.0] * 600 + [1.0] * 600] * 3


@pytest.mark.parametrize("average", [True, False])
def test_what_both_codings_lose_waits(average):
    """Over all ranks, and for each element: came in = applied + what waits."""
    recipe = OneBit(exchange="owners", warmup_steps=0)

    def job(session):
        parameter = parameter_of(session, recipe)
        gradient = np.random.default_rng(session.rank).standard_normal(1200).astype(F)
        came = gradient.copy()
        applied = session.submit(parameter.operation(gradient, OptimizerStep(0, average=average))).wait().copy()
        return came, applied, parameter.feedback.accumulated

    ranks = run_ranks(3, job)
    applied = ranks[0][1] * (3 if average else 1)
    assert len({rank[1].tobytes() for rank in ranks}) == 1
    np.testing.assert_allclose(applied + sum(r[2] for r in ranks), sum(r[0] for r in ranks), atol=2e-6)


def test_a_damaged_part_is_refused_on_every_rank_and_nothing_counts_as_sent():
    def job(session):
        parameter = parameter_of(session, Int8(exchange="owners"))
        shared = parameter.shared
        if session.rank == 1:
            scatter = shared.exchanges.messages.alltoall

            def damaged(messages, *arguments):
                messages[2][60] ^= 1
                scatter(messages, *arguments)

            shared.exchanges.messages.alltoall = damaged
        with pytest.raises(MessageError) as caught:
            session.submit(parameter.operation(np.ones(1200, F), OptimizerStep(0))).wait()
        return str(caught.value), parameter.feedback.accumulated.tolist() == [1.0] * 1200

    text = "Message from rank 2, parameter 'fc.weight': could not add up what it got"
    for said, kept in run_ranks(3, job):
        assert said.startswith(text)
        assert kept


def test_a_rank_that_fails_to_code_is_named_by_the_others():
    def job(session):
        parameter = parameter_of(session, Int8(exchange="owners"))
        if session.rank == 1:
            parameter.code = lambda *_, **__: 1 / 0
        expected = ZeroDivisionError if session.rank == 1 else MessageError
        with pytest.raises(expected):
            session.submit(parameter.operation(np.ones(1200, F), OptimizerStep(0))).wait()
        return True

    assert run_ranks(2, job) == [True, True]


def test_an_owner_that_fails_to_add_its_part_does_not_keep_the_others_waiting():
    def job(session):
        parameter = parameter_of(session, Int8(exchange="owners"))
        if session.rank == 1:
            code = parameter.code
            parameter.code = lambda values, step, place: code(values, step, place) if place < 3 else 1 / 0
        expected = ZeroDivisionError if session.rank == 1 else MessageError
        with pytest.raises(expected):
            session.submit(parameter.operation(np.ones(1200, F), OptimizerStep(0))).wait()
        return parameter.feedback.accumulated.tolist() == [1.0] * 1200

    assert run_ranks(3, job) == [True] * 3


def test_very_large_gradients_have_a_unit():
    """Their squares are beyond float32."""

    def job(session):
        gradient = np.full(1200, 3e18, F)
        return session.submit(parameter_of(session, TwoBit()).operation(gradient, OptimizerStep(0))).wait()

    for found in run_ranks(2, job):
        np.testing.assert_allclose(found, 3e18, rtol=1e-6)


def test_parts_have_random_numbers_of_their_own():
    def job(session):
        parameter = parameter_of(session, QSGD(exchange="owners", bits=2), (3, 512))
        operation = parameter.operation(np.tile(np.linspace(-1, 1, 512, dtype=F), 3), OptimizerStep(0))
        operation.prepare(session.engine.link)
        return len({frame[24:].tobytes() for frame in operation._frames})

    assert run_ranks(3, job) == [3, 3, 3]
