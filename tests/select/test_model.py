import numpy as np
import pytest

from sparse_ring.error_feedback import MomentumResidual
from sparse_ring.kernels.table import kernels_for
from sparse_ring.recipe.base import kept
from sparse_ring.select import ModelSelector, ModelThreshold, Scratch
from sparse_ring.sparse import SparseGradient

F = np.float32
KERNELS = kernels_for()
SIZES = [200_000, 60_000, 5000, 1100]


class Model:
    """A few parameters under one threshold."""

    def __init__(self, density=0.01, momentum=0.0):
        self.shared, self.scratch, self.density, self.momentum = ModelThreshold(), Scratch(), density, momentum
        self.selectors = [ModelSelector(self.shared) for _ in SIZES]
        self.feedbacks = [MomentumResidual(size, KERNELS) for size in SIZES]

    def step(self, gradients, order=(0, 1, 2, 3), density=None):
        """Return what each parameter sent; None for those that are not in ``order``."""
        found = [None] * len(SIZES)
        for number in order:
            keep = kept(SIZES[number], density or self.density)
            sparse = self.selectors[number].select(
                self.feedbacks[number], gradients[number], self.momentum, False, keep, KERNELS, self.scratch
            )
            found[number] = SparseGradient(sparse.indices.copy(), sparse.values.copy(), SIZES[number])
            assert sparse.count <= self.selectors[number].most(keep, SIZES[number]) <= 8 * keep
            assert sparse.values.tobytes() == self.feedbacks[number].accumulated[sparse.indices].tobytes()
            assert 0 not in sparse.values
            self.feedbacks[number].sent(found[number])
        return found


def noise(seed, step, scales=(1.0, 0.5, 2.0, 0.01)):
    generator = np.random.default_rng([seed, step])
    return [scale * generator.standard_normal(size).astype(F) for scale, size in zip(scales, SIZES, strict=True)]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("density", [0.001, 0.01, 0.1])
def test_the_density_of_the_model_is_what_was_wanted(density, momentum):
    model = Model(density, momentum)
    counts = [sum(sparse.count for sparse in model.step(noise(0, step))) for step in range(80)]
    wanted = sum(kept(size, density) for size in SIZES)
    assert counts[0] == wanted
    # With momentum residuals grow longer.
    settled = 40 if momentum else 20
    assert abs(np.mean(counts[settled:]) / wanted - 1) < 0.05
    # One step alone may miss it, but not by much.
    assert np.abs(np.array(counts[settled:]) / wanted - 1).max() < 0.5


def test_large_gradients_get_more_than_their_share_and_tiny_ones_less():
    model = Model()
    for step in range(30):
        sent = model.step(noise(0, step, scales=(1.0, 0.1, 1.0, 0.0001)))
    densities = [sparse.density for sparse in sent]
    assert densities[0] > 0.01 > densities[1]
    assert sent[3].count == 0


def test_the_second_step_takes_the_threshold_that_the_first_would_have_needed():
    model = Model()
    gradients = noise(0, 0)
    first = model.step(gradients)
    assert [sparse.count for sparse in first] == [kept(size, 0.01) for size in SIZES]
    model.shared.settle()
    # All that a parameter may send at most were in it.
    most = np.concatenate([np.sort(np.abs(g))[::-1][: 8 * kept(g.size, 0.01)] for g in gradients])
    wanted = sum(kept(size, 0.01) for size in SIZES)
    assert model.shared.threshold == np.sort(most)[::-1][wanted - 1]


def test_no_parameter_sends_more_than_eight_shares():
    model = Model()
    for step in range(5):
        gradients = noise(0, step)
        gradients[3] *= 1e6
        sent = model.step(gradients)
        assert sent[3].count <= 8 * 11
    assert sent[3].count == 8 * 11


def test_the_order_of_parameters_changes_nothing():
    straight, mixed = Model(), Model()
    for step in range(12):
        order = np.random.default_rng(step).permutation(len(SIZES))
        for one, other in zip(straight.step(noise(0, step)), mixed.step(noise(0, step), order), strict=True):
            assert one.indices.tobytes() == other.indices.tobytes()


def test_parameters_may_be_left_out():
    model = Model()
    counts = []
    for step in range(80):
        order = [n for n in range(len(SIZES)) if n != 2 + step % 3]
        sent = model.step(noise(0, step), order)
        counts.append((sum(sent[n].count for n in order), sum(kept(SIZES[n], 0.01) for n in order)))
    assert abs(sum(count for count, _ in counts[30:]) / sum(wanted for _, wanted in counts[30:]) - 1) < 0.1


def test_another_density_starts_afresh():
    model = Model()
    for step in range(10):
        model.step(noise(0, step), density=0.1)
    sent = model.step(noise(0, 10), density=0.01)
    assert [sparse.count for sparse in sent] == [kept(size, 0.01) for size in SIZES]


def test_state_resumes_bit_for_bit():
    straight, resumed = Model(momentum=0.9), Model(momentum=0.9)
    for step in range(14):
        sent = straight.step(noise(0, step))
        if step in (0, 9):
            # Also after the first step, in which no threshold is known.
            for number in range(len(SIZES)):
                resumed.selectors[number].load_state_dict(straight.selectors[number].state_dict())
                resumed.feedbacks[number].load_state_dict(straight.feedbacks[number].state_dict())
        else:
            again = resumed.step(noise(0, step))
            for one, other in zip(sent, again, strict=True):
                assert one.indices.tobytes() == other.indices.tobytes()
    for number in range(len(SIZES)):
        resumed.selectors[number].load_state_dict({})
    assert [sparse.count for sparse in resumed.step(noise(0, 14))] == [kept(size, 0.01) for size in SIZES]


@pytest.mark.parametrize("kind", ["zeros", "drop", "flood", "overflow"])
def test_it_finds_back_from_anything(kind):
    model = Model()
    wanted = sum(kept(size, 0.01) for size in SIZES)
    for step in range(150):
        gradients = noise(0, step)
        if kind == "zeros" and 5 < step < 60:
            gradients = [0 * gradient for gradient in gradients]
        if kind == "drop" and step > 20:
            gradients = [gradient * F(1e-3) for gradient in gradients]
        if kind == "flood" and step > 20:
            gradients = [gradient * F(1e3) for gradient in gradients]
        if kind == "overflow" and step == 20:
            gradients[0][:] = 3e38
        with np.errstate(over="ignore", invalid="ignore"):
            sent = model.step(gradients)
        for feedback in model.feedbacks:
            if not np.isfinite(feedback.accumulated).all():
                feedback.drop_nonfinite()
    count = sum(sparse.count for sparse in sent)
    assert 0.5 * wanted < count < 1.5 * wanted
