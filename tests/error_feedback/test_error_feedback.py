import numpy as np
import pytest

from sparse_ring.error_feedback import Memoryless, MomentumResidual, Residual, Velocity
from sparse_ring.kernels.table import kernels_for
from sparse_ring.sparse import SparseGradient

KERNELS = kernels_for("reference")


def floats(*values):
    return np.array(values, np.float32)


def test_a_residual_keeps_what_was_not_sent():
    feedback = Residual(3, KERNELS)
    feedback.accumulate(floats(1, -4, 2), momentum=0.9, nesterov=False)
    feedback.sent(SparseGradient(np.array([1], np.uint32), floats(-3.5), 3))
    assert feedback.accumulated.tolist() == [1, -0.5, 2]
    feedback.accumulate(floats(1, 1, 1), momentum=0.9, nesterov=False)
    assert feedback.accumulated.tolist() == [2, 0.5, 3]


def test_velocity_is_accumulated_and_cut_where_it_was_sent():
    feedback = MomentumResidual(2, KERNELS)
    feedback.accumulate(floats(1, 2), momentum=0.5, nesterov=False)
    feedback.accumulate(floats(1, 2), momentum=0.5, nesterov=False)
    assert feedback.velocity.tolist() == [1.5, 3]
    assert feedback.accumulated.tolist() == [2.5, 5]
    feedback.sent(SparseGradient(np.array([1], np.uint32), floats(5), 2))
    assert feedback.velocity.tolist() == [1.5, 0]
    assert feedback.accumulated.tolist() == [2.5, 0]


def test_nesterov_looks_one_step_ahead():
    feedback = MomentumResidual(1, KERNELS)
    feedback.accumulate(floats(4), momentum=0.5, nesterov=True)
    assert feedback.velocity.tolist() == [4]
    assert feedback.accumulated.tolist() == [6]


def test_the_fused_pass_equals_accumulate_then_select():
    apart, fused = MomentumResidual(5, KERNELS), MomentumResidual(5, KERNELS)
    gradient = floats(0.1, -3, 0.2, 5, -0.3)
    apart.accumulate(gradient, 0.9, False)
    indices, values = np.empty(5 + 16, np.uint32), np.empty(5 + 16, np.float32)
    count = fused.accumulate_select(gradient, 0.9, False, 1.0, indices, values)
    assert indices[:count].tolist() == [1, 3]
    assert values[:count].tolist() == [-3, 5]
    assert fused.accumulated.tobytes() == apart.accumulated.tobytes()


def test_a_dense_stage_empties_the_residual_but_not_the_velocity():
    feedback = MomentumResidual(2, KERNELS)
    feedback.accumulate(floats(1, 2), 0.9, False)
    feedback.sent_all(feedback.accumulated.copy())
    assert feedback.accumulated.tolist() == [0, 0]
    assert feedback.velocity.tolist() == [1, 2]


@pytest.mark.parametrize("kind", [Residual, MomentumResidual])
def test_what_coding_loses_of_a_whole_parameter_stays(kind):
    feedback = kind(3, KERNELS)
    feedback.accumulate(floats(1, -2, 0.1), 0.0, False)
    feedback.sent_all(floats(0.75, -2, 0.5))
    assert feedback.accumulated.tolist() == [0.25, 0, float(np.float32(0.1) - np.float32(0.5))]


def test_without_momentum_no_memory_is_spent_on_a_velocity():
    feedback = MomentumResidual(2, KERNELS)
    feedback.accumulate(floats(1, 2), 0.0, False)
    assert feedback.velocity is None
    assert list(feedback.state_dict()) == ["residual"]


@pytest.mark.parametrize("kind", [Residual, MomentumResidual])
def test_state_survives_a_round_trip_as_copies(kind):
    feedback, other = kind(2, KERNELS), kind(2, KERNELS)
    feedback.accumulate(floats(1, 2), 0.9, False)
    other.load_state_dict(feedback.state_dict())
    before = {name: array.tolist() for name, array in other.state_dict().items()}
    feedback.accumulate(floats(1, 2), 0.9, False)
    assert {name: array.tolist() for name, array in other.state_dict().items()} == before
    other.load_state_dict({})
    assert other.accumulated.tolist() == [0, 0]


def test_state_of_another_size_is_refused():
    with pytest.raises(ValueError, match="residual has 3 elements, but the parameter has 2"):
        Residual(2, KERNELS).load_state_dict({"residual": np.zeros(3, np.float32)})


@pytest.mark.parametrize("kind", [Residual, MomentumResidual])
def test_what_overflows_starts_at_zero(kind):
    feedback = kind(3, KERNELS)
    with np.errstate(over="ignore"):
        for _ in range(2):
            feedback.accumulate(floats(1, 3e38, 2), 0.9, False)
    assert feedback.drop_nonfinite() == 1
    assert feedback.accumulated[1] == 0
    assert feedback.accumulated[0] > 0
    assert all(np.isfinite(array).all() for array in feedback.state_dict().values())


def test_without_memory_nothing_is_kept():
    feedback = Memoryless(3, KERNELS)
    for _ in range(2):
        feedback.accumulate(floats(1, -2, 3), 0.9, False)
        assert feedback.accumulated.tolist() == [1, -2, 3]
        feedback.sent_all(floats(0, 0, 0))
    assert feedback.residual_norm() == 0.0
    assert feedback.state_dict() == {}


def test_outliers_are_cut_off_at_so_many_deviations():
    gradient = np.full(10_000, 0.5, np.float32)
    gradient[::2] *= -1
    gradient[7] = 100
    feedback = Memoryless(gradient.size, KERNELS, clip_sigmas=2.5)
    feedback.accumulate(gradient, 0.0, False)
    assert feedback.accumulated[7] == np.float32(2.5 * float(gradient.std(dtype=np.float64)))
    assert np.array_equal(np.delete(feedback.accumulated, 7), np.delete(gradient, 7))


def test_a_velocity_is_sent_and_stays():
    feedback = Velocity(2, KERNELS)
    feedback.accumulate(floats(1, 2), momentum=0.5, nesterov=False)
    feedback.sent_all(floats(1, 1))
    feedback.accumulate(floats(1, 2), momentum=0.5, nesterov=False)
    assert feedback.accumulated.tolist() == [1.5, 3]
    assert feedback.state_dict()["velocity"].tolist() == [1.5, 3]
    assert feedback.residual_norm() == 0.0
