"""Agreed positions: drawn alike or told by a leader."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparse_ring.errors import MessageError, MismatchError
from sparse_ring.gradient import OptimizerStep, Pipeline, pipeline_of
from sparse_ring.gradient.agreed import drawn_positions
from sparse_ring.recipe import CLTK, RandomK
from tests.helpers import run_ranks

F = np.float32


def parameter_of(session, recipe):
    shared = Pipeline(1, session.kernels, session.exchanges, "", session.rank, session.size)
    return pipeline_of(shared, recipe, 0, "fc.weight", (40, 30), compressed=True, in_message=False)


@given(numel=st.integers(1, 5000), data=st.data())
def test_positions_are_distinct_and_in_order(numel, data):
    keep = data.draw(st.integers(1, numel))
    drawn = drawn_positions(numel, keep, (data.draw(st.integers(0, 9)), data.draw(st.integers(0, 2**40)), 3))
    assert len(drawn) == keep
    assert (np.diff(drawn.astype(np.int64)) > 0).all()
    assert int(drawn[-1]) < numel


def test_every_position_comes_up_as_often():
    counts = np.zeros(1000)
    for step in range(4000):
        counts[drawn_positions(1000, 100, (0, step, 0))] += 1
    # Binomial with mean 400: six standard deviations.
    assert np.abs(counts - 400).max() < 6 * (4000 * 0.1 * 0.9) ** 0.5


def test_other_steps_parameters_and_seeds_draw_other_positions():
    keys = [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0)]
    assert len({drawn_positions(10_000, 100, key).tobytes() for key in keys}) == 4


def test_drawn_positions_never_change():
    """They are part of what ranks with different versions would have to agree on."""
    assert drawn_positions(1000, 5, (1, 2, 3)).tolist() == [2, 226, 487, 790, 855]


@pytest.mark.parametrize("leader", [0, 1, 2])
def test_all_send_what_the_leader_has_most_of(leader):
    """The leader's largest elements are shared in full; those of the others wait."""

    def job(session):
        gradient = np.full(1200, 0.25, F)
        gradient[session.rank * 100 : session.rank * 100 + 12] = 8
        operation = parameter_of(session, CLTK(density=0.01)).operation(gradient, OptimizerStep(leader, average=False))
        return session.submit(operation).wait().tolist()

    expected = np.zeros(1200)
    expected[leader * 100 : leader * 100 + 12] = 8.5
    assert run_ranks(3, job) == [expected.tolist()] * 3


def test_positions_that_cannot_be_read_fail_on_every_rank():
    def job(session):
        parameter = parameter_of(session, CLTK(density=0.1))
        messages = parameter.shared.exchanges.messages
        if session.rank == 1:
            told = messages.broadcast

            def damaged(message, root, most, link, what, arrived):
                def changed(rank, data):
                    data[50] ^= 1
                    arrived(rank, data)

                told(message, root, most, link, what, changed)

            messages.broadcast = damaged
        with pytest.raises(MessageError) as caught:
            session.submit(parameter.operation(np.ones(1200, F), OptimizerStep(0))).wait()
        return str(caught.value), parameter.feedback.accumulated.tolist() == [1.0] * 1200

    first, second = run_ranks(2, job)
    assert "rank 0, parameter 'fc.weight': frame 0" in second[0]
    assert "rank 1, parameter 'fc.weight': failed before it could send" in first[0]
    assert first[1]
    assert second[1]


def test_a_rank_that_fails_to_accumulate_is_named_by_the_others():
    def job(session):
        parameter = parameter_of(session, RandomK(density=0.1))
        if session.rank == 1:
            parameter.feedback.accumulate = lambda *_: 1 / 0
        expected = ZeroDivisionError if session.rank == 1 else MessageError
        with pytest.raises(expected):
            session.submit(parameter.operation(np.ones(1200, F), OptimizerStep(0))).wait()
        return True

    assert run_ranks(2, job) == [True, True]


@pytest.mark.parametrize(("recipe", "error", "text"), [
    (RandomK(density=0.1), MessageError, "is of step 6, but this rank is at 5: resume all ranks from one checkpoint"),
    (CLTK(density=0.1), MismatchError, "leader=1.*leader=0"),
])  # fmt: skip
def test_ranks_at_different_steps_tell_each_other(recipe, error, text):
    def job(session):
        parameter = parameter_of(session, recipe)
        with pytest.raises(error, match=text if session.rank == 0 else "leader=1|is of step 5"):
            session.submit(parameter.operation(np.ones(1200, F), OptimizerStep(5 + session.rank))).wait()
        # Nothing was applied, so everything waits.
        return parameter.feedback.accumulated.tolist() == [1.0] * 1200

    assert run_ranks(2, job) == [True, True]
