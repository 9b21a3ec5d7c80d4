"""GradSA with compensation, several ranks step by step: the state of each is what the equations in NumPy say, bit for bit.

So conservation holds as accumulated = residual + compensation + input.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparse_ring.gradient import OptimizerStep
from sparse_ring.message import read_message
from sparse_ring.observe.metrics import Metrics
from sparse_ring.recipe import GradSA
from sparse_ring.recipe.gradsa import COMPENSATIONS
from sparse_ring.sparse import SparseGradient
from tests.gradient.test_framed import PLAN, parameter_of, twin

F = np.float32
LEARNING_RATE = 0.3


def exchange(parameters, gradients, step):
    """One step of all ranks, in one thread; returns what each sent and the aggregate. None: that rank's is not finite."""
    sent = []
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.shared.writer.begin(step.number, PLAN)
        parameter.compress(gradient.copy(), step, Metrics())
        (frame,) = read_message(parameter.shared.writer.finish(), step.number, PLAN, 1, parameter.shared.kernels)
        sent.append(parameter.decode(frame))
    aggregate = np.empty_like(gradients[0])
    for parameter, own in zip(parameters, sent, strict=True):
        parameter.aggregate(sent, step, aggregate)
        parameter.sent(own)
        parameter.compensate(sent, step, aggregate)
    return sent, aggregate


class Twin:
    """One rank's state in NumPy, every operation rounded to float32."""

    def __init__(self, recipe, numel):
        self.recipe = recipe
        self.residual = np.zeros(numel, F)
        self.velocity = np.zeros(numel, F) if recipe.momentum == "local" else None
        self.history = np.zeros(numel, F)
        self.mean_square = None

    def step(self, gradient, sent, everybody, aggregate, momentum, nesterov, part):
        if sent is not None:
            self.accumulate_and_send(gradient, sent, momentum, nesterov)
        positions = [part.indices for part in everybody if isinstance(part, SparseGradient)]
        touched = np.unique(np.concatenate(positions)) if positions else None
        if touched is not None and "taylor" in self.recipe.compensation:
            self.taylor(touched, np.concatenate(positions), aggregate)
        if "history" in self.recipe.compensation:
            strength = F(self.recipe.history_strength)
            self.history = strength * self.history + aggregate
            others = np.ones(len(self.residual), bool)
            if isinstance(sent, SparseGradient):
                others[sent.indices] = False
            elif sent is not None:
                others[:] = False
            # Under Sum all ranks together add what one adds under Average.
            self.residual[others] += (self.history * F(self.recipe.history_strength * part))[others]
        if self.recipe.momentum == "global" and momentum:
            where = slice(None) if touched is None else touched
            self.residual[where] += aggregate[where] * F(momentum * part)

    def accumulate_and_send(self, gradient, sent, momentum, nesterov):
        velocity = self.velocity if momentum else None
        self.residual, velocity = twin(self.residual, velocity, gradient, momentum, nesterov)
        self.velocity = self.velocity if velocity is None else velocity
        if isinstance(sent, SparseGradient):
            self.residual[sent.indices] -= sent.values
            if self.velocity is not None:
                self.velocity[sent.indices] = 0
        else:
            self.residual = self.residual - sent

    def taylor(self, touched, with_repeats, aggregate):
        strength = self.recipe.taylor_strength
        if "adaptive" in self.recipe.compensation:
            now = F(np.square(self.residual[with_repeats].astype(np.float64)).mean())
            before = self.mean_square
            self.mean_square = now if before is None else F(0.95) * before + F(1.0 - 0.95) * now
            strength = self.recipe.adaptive_strength / float(np.sqrt(np.float64(self.mean_square) + 1e-7))
        r = self.residual[touched]
        with np.errstate(over="ignore", invalid="ignore"):
            correction = F(strength) * (r * r) * (F(-LEARNING_RATE) * aggregate[touched])
            corrected = r + np.minimum(np.maximum(correction, -np.abs(r)), np.abs(r))
        self.residual[touched] = np.where(np.isfinite(corrected), corrected, r)


@settings(deadline=None, max_examples=60)
@given(
    compensation=st.sampled_from(COMPENSATIONS),
    where=st.sampled_from(["local", "global"]),
    size=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
    warmup=st.sampled_from([0, 3]),
    momentum=st.sampled_from([0.0, 0.9]),
    nesterov=st.booleans(),
    values=st.sampled_from(["float32", "float16", "sign"]),
    average=st.booleans(),
    skip=st.booleans(),
    kernels=st.sampled_from(["auto", "scalar", "reference"]),
)
def test_what_waits_is_what_was_not_sent_and_what_compensation_added(
    compensation, where, size, seed, warmup, momentum, nesterov, values, average, skip, kernels
):
    nesterov = nesterov and where == "local"
    recipe = GradSA(
        density=0.05, warmup_steps=warmup, compensation=compensation, momentum=where, values=values,
        taylor_strength=0.05, history_strength=0.3,
    )  # fmt: skip
    shape, numel = (40, 30), 1200
    parameters = [parameter_of(recipe, shape, kernels) for _ in range(size)]
    for parameter in parameters:
        parameter.shared.size = size
    twins = [Twin(recipe, numel) for _ in range(size)]
    generator = np.random.default_rng(seed)
    for number in range(6):
        gradients = [generator.standard_normal(numel).astype(F) for _ in range(size)]
        if skip and number == 4:
            gradients[-1][7] = np.inf
        step = OptimizerStep(number, momentum, nesterov, LEARNING_RATE, average)
        sent, aggregate = exchange(parameters, gradients, step)
        assert (sent[-1] is None) == (skip and number == 4)
        for parameter, expected, gradient, own in zip(parameters, twins, gradients, sent, strict=True):
            expected.step(gradient, own, sent, aggregate, momentum, nesterov, 1.0 if average else 1.0 / size)
            state = parameter.state_dict()
            assert state["residual"].tobytes() == expected.residual.tobytes()
            if where == "local" and momentum:
                assert state["velocity"].tobytes() == expected.velocity.tobytes()
            else:
                assert "velocity" not in state
            if "history" in compensation:
                assert state["history"].tobytes() == expected.history.tobytes()


@pytest.mark.parametrize("compensation", COMPENSATIONS)
@pytest.mark.parametrize("where", ["local", "global"])
def test_state_resumes_bit_for_bit(compensation, where):
    recipe = GradSA(density=0.05, warmup_steps=2, compensation=compensation, momentum=where)
    generator = np.random.default_rng(1)
    straight, resumed = ([parameter_of(recipe, (40, 30)) for _ in range(2)] for _ in range(2))
    for number in range(8):
        gradients = [generator.standard_normal(1200).astype(F) for _ in range(2)]
        step = OptimizerStep(number, 0.9, False, LEARNING_RATE)
        _, aggregate = exchange(straight, gradients, step)
        if number >= 5:
            assert exchange(resumed, gradients, step)[1].tobytes() == aggregate.tobytes()
        if number == 4:
            for old, new in zip(straight, resumed, strict=True):
                new.load_state_dict(old.state_dict())


def test_compensation_changes_what_is_sent():
    """Else the others would pass with compensations that do nothing."""
    found = {}
    for compensation in COMPENSATIONS:
        for where in ("local", "global"):
            recipe = GradSA(density=0.05, warmup_steps=0, compensation=compensation, momentum=where)
            parameters = [parameter_of(recipe, (40, 30)) for _ in range(2)]
            generator = np.random.default_rng(1)
            for number in range(4):
                gradients = [generator.standard_normal(1200).astype(F) for _ in range(2)]
                aggregate = exchange(parameters, gradients, OptimizerStep(number, 0.9, False, LEARNING_RATE))[1]
            found[compensation, where] = aggregate.tobytes()
    assert len(set(found.values())) == len(found)


@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("size", [1, 4])
def test_global_momentum_is_heavy_ball_momentum(average, size):
    """At density 1, whether gradients are averaged or summed."""
    recipe = GradSA(density=1.0, values="float32", momentum="global", minimum_elements=10)
    parameters = [parameter_of(recipe, (4, 5)) for _ in range(size)]
    for parameter in parameters:
        parameter.shared.size = size
    buffer = 0.0
    for number in range(6):
        buffer = 0.9 * buffer + (1.0 if average else float(size))
        gradients = [np.ones(20, F) for _ in range(size)]
        aggregate = exchange(parameters, gradients, OptimizerStep(number, 0.9, average=average))[1]
        np.testing.assert_allclose(aggregate, buffer, rtol=1e-5)
