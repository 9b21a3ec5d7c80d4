"""What waits is made up for being stale: worked out by hand, and what becomes of the state."""

import numpy as np
import pytest

from sparse_ring.error_feedback import (
    AdaptiveTaylor,
    Applied,
    GlobalMomentum,
    History,
    MomentumResidual,
    Residual,
    Taylor,
)
from sparse_ring.kernels.table import kernels_for
from sparse_ring.sparse import SparseGradient

KERNELS = kernels_for("reference")
F = np.float32


def floats(*values):
    return np.array(values, np.float32)


def places(*values):
    return np.array(values, np.uint32)


def applied(aggregate, touched, sent=(), learning_rate=0.5, momentum=0.0):
    return Applied(
        aggregate,
        None if touched is None else places(*touched),
        None if sent is None else places(*sent),
        learning_rate,
        momentum,
    )


def test_taylor_moves_what_waits_where_weights_have_moved():
    waiting = floats(1, -2, 3, 4)
    Taylor(0.25).apply(waiting, applied(floats(4, -2, 0, 99), touched=[0, 1, 2]))
    # dw = -0.5 * aggregate = (-2, 1, 0): r + 0.25 * r**2 * dw; the last was not touched.
    assert waiting.tolist() == [1 - 0.5, -2 + 1, 3, 4]


def test_a_position_that_two_ranks_sent_is_corrected_once():
    once, twice = floats(1, 2, 3), floats(1, 2, 3)
    Taylor(1.0).apply(once, applied(floats(1, 1, 1), touched=[0, 1]))
    Taylor(1.0).apply(twice, applied(floats(1, 1, 1), touched=[0, 1, 1, 0]))
    assert once.tolist() == twice.tolist() == [0.5, 0, 3]
    once, twice = floats(1, 2, 3), floats(1, 2, 3)
    GlobalMomentum(KERNELS).apply(once, applied(floats(1, 1, 1), touched=[0, 1], momentum=0.5))
    GlobalMomentum(KERNELS).apply(twice, applied(floats(1, 1, 1), touched=[1, 0, 1], momentum=0.5))
    assert once.tolist() == twice.tolist() == [1.5, 2.5, 3]


@pytest.mark.parametrize("touched", [None, ()])
def test_taylor_has_nothing_to_do_where_nothing_waits_or_moved(touched):
    for taylor in (Taylor(1.0), AdaptiveTaylor(1.0)):
        waiting = floats(1, 2)
        taylor.apply(waiting, applied(floats(1, 1), touched))
        assert waiting.tolist() == [1, 2]
        assert taylor.state_dict() == {}


def test_adaptive_strength_follows_the_mean_square():
    taylor, waiting = AdaptiveTaylor(3.0), floats(1, 7, 9)
    taylor.apply(waiting, applied(floats(0, 0, 0), touched=[0, 1]))
    # The mean of 1 and 49 at first; then 0.95 of that and 0.05 of 81.
    assert taylor.mean_square == 25
    assert taylor.strength(floats(9)) == 3.0 / float(np.sqrt(np.float64(F(0.95) * F(25) + F(1 - 0.95) * F(81)) + 1e-7))
    taylor = AdaptiveTaylor(0.5)
    waiting = floats(4)
    taylor.apply(waiting, applied(floats(2), touched=[0]))
    assert waiting == F(4) + F(0.5 / float(np.sqrt(16 + 1e-7))) * F(16) * F(-1)


def test_nothing_moves_by_more_than_itself():
    waiting = floats(4, -4, 1e30, 1e30)
    Taylor(1.0).apply(waiting, applied(floats(1, 1, -1, 0), touched=[0, 1, 2, 3]))
    # Corrections of -8, -8, more than float32 holds, and infinity times zero.
    assert waiting.tolist() == [0, -8, float(F(1e30) * 2), float(F(1e30))]
    waiting = floats(3e38, 1)
    taylor = AdaptiveTaylor(1.0)
    taylor.apply(waiting, applied(floats(-1, -1), touched=[0, 1]))
    assert waiting.tolist() == [float(F(3e38)), 1]
    assert taylor.mean_square is None


def test_history_is_added_where_this_rank_did_not_send():
    history = History(0.25, KERNELS)
    waiting = floats(1, 2, 3)
    history.apply(waiting, applied(floats(4, 8, 0), touched=[0, 1], sent=[1]))
    assert history.history.tolist() == [4, 8, 0]
    assert waiting.tolist() == [1 + 1, 2, 3]
    history.apply(waiting, applied(floats(0, 4, 8), touched=[1, 2], sent=[]))
    assert history.history.tolist() == [1, 6, 8]
    assert waiting.tolist() == [2.25, 3.5, 5]


def test_history_goes_on_in_a_dense_stage_and_adds_nothing():
    history, waiting = History(0.25, KERNELS), floats(0, 0)
    history.apply(waiting, applied(floats(4, 8), touched=None, sent=None))
    assert waiting.tolist() == [0, 0]
    assert history.history.tolist() == [4, 8]


def test_history_forgets_what_is_not_finite():
    history, waiting = History(0.25, KERNELS), floats(0, 0)
    history.apply(waiting, applied(floats(np.inf, 8), touched=[0, 1]))
    assert history.history.tolist() == [0, 8]
    assert waiting.tolist() == [0, 2]


def test_momentum_of_the_aggregate_in_a_dense_stage_is_heavy_ball():
    """The mean of what ranks send is g + m * (what was applied): SGD's buffer, without any rank keeping one."""
    ranks = [Residual(3, KERNELS, (GlobalMomentum(KERNELS),)) for _ in range(2)]
    buffer = floats(0, 0, 0)
    for step in range(4):
        gradients = [floats(1, 2, 4) * (step + 1), floats(3, -2, 0)]
        for feedback, gradient in zip(ranks, gradients, strict=True):
            feedback.accumulate(gradient, 0.5, False)
        aggregate = (ranks[0].accumulated + ranks[1].accumulated) * F(0.5)
        buffer = F(0.5) * buffer + (gradients[0] + gradients[1]) * F(0.5)
        assert aggregate.tolist() == buffer.tolist()
        for feedback in ranks:
            feedback.sent_all(feedback.accumulated.copy())
            feedback.aggregated(aggregate, [], 0.1, 0.5)


@pytest.mark.parametrize("kind", [Residual, MomentumResidual])
def test_a_rank_that_has_nothing_to_send_takes_part_in_the_history(kind):
    feedback = kind(2, KERNELS, (History(0.25, KERNELS),))
    feedback.accumulate(floats(1, 2), 0.0, False)
    feedback.sent(SparseGradient(places(1), floats(2), 2))
    feedback.aggregated(floats(0, 4), [places(1)], 0.1)
    assert feedback.accumulated.tolist() == [1, 0]
    # Its next gradient is not finite, so nothing is sent; what it sent before does not count.
    feedback.aggregated(floats(0, 3), [places(1)], 0.1)
    assert feedback.accumulated.tolist() == [1, 1]


def test_only_what_compensates_hears_of_aggregates():
    assert not Residual(1, KERNELS).compensates
    assert MomentumResidual(1, KERNELS, (Taylor(1.0),)).compensates


@pytest.mark.parametrize("kind", [Residual, MomentumResidual])
def test_the_state_of_compensations_survives_a_round_trip_as_copies(kind):
    def fresh():
        return kind(2, KERNELS, (AdaptiveTaylor(2.0), History(0.25, KERNELS)))

    def step(feedback):
        feedback.accumulate(floats(1, 2), 0.9, False)
        feedback.sent(SparseGradient(places(1), floats(1.5), 2))
        feedback.aggregated(floats(0, 3), [places(1), places(0)], 0.1, 0.9)
        return {name: array.tobytes() for name, array in feedback.state_dict().items()}

    feedback, other = fresh(), fresh()
    assert list(feedback.state_dict()) == ["residual"]
    saved = step(feedback)
    assert {"residual", "mean_square", "history"} <= set(saved)
    other.load_state_dict(feedback.state_dict())
    went_on = step(feedback)
    assert went_on != saved
    assert step(other) == went_on
    other.load_state_dict({})
    assert step(other) == saved
