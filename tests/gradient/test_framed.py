"""One parameter on one rank: conservation, against the equations written in NumPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparse_ring.encode import INDEX_CHOICES, INDEX_CODES, VALUE_NAMES
from sparse_ring.exchange.exchanges import Exchanges
from sparse_ring.gradient import OptimizerStep, Pipeline, pipeline_of
from sparse_ring.kernels.table import kernels_for
from sparse_ring.message import read_message
from sparse_ring.observe.metrics import Metrics
from sparse_ring.recipe import GradSA, TopK
from sparse_ring.sparse import SparseGradient

PLAN = 5
F = np.float32


def parameter_of(recipe, shape, kernels="auto", sparse=True):
    table = kernels_for(kernels)
    shared = Pipeline(PLAN, table, Exchanges(table))
    return pipeline_of(shared, recipe, 0, "layer.weight", shape, compressed=sparse, in_message=True)


def send(parameter, gradient, step, momentum=0.0, nesterov=False, metrics=None):
    """Compress one gradient and take note that it was sent; return what receivers decode."""
    shared = parameter.shared
    shared.writer.begin(step, PLAN)
    parameter.compress(gradient, OptimizerStep(step, momentum, nesterov), metrics or Metrics())
    (frame,) = read_message(shared.writer.finish(), step, PLAN, 1, shared.kernels)
    decoded = parameter.decode(frame)
    parameter.sent(decoded)
    return decoded


def twin(residual, velocity, gradient, momentum, nesterov):
    """u = m*u + g; acc = r + u, each operation rounded to float32."""
    if velocity is None:
        return residual + gradient, None
    velocity = F(momentum) * velocity + gradient
    step = F(momentum) * velocity + gradient if nesterov else velocity
    return residual + step, velocity


def state_of(parameter, numel):
    state = parameter.feedback.state_dict()
    velocity = state.get("velocity")
    return state["residual"].copy(), None if velocity is None else velocity.copy()


recipes = st.builds(
    lambda kind, density, indices, values: kind(density=density, indices=indices, values=values),
    kind=st.sampled_from([TopK, lambda **settings: GradSA(warmup_steps=4, **settings)]),
    density=st.sampled_from([0.001, 0.01, 0.1, 0.5, 1.0]),
    indices=st.sampled_from(list(INDEX_CHOICES)),
    values=st.sampled_from(list(VALUE_NAMES)),
)


@settings(deadline=None, max_examples=80)
@given(
    recipe=recipes,
    seed=st.integers(0, 2**32 - 1),
    shape=st.sampled_from([(1, 1), (3, 5), (32, 32), (2, 3, 5, 7), (100, 70)]),
    momentum=st.sampled_from([0.0, 0.9]),
    nesterov=st.booleans(),
    spread=st.sampled_from([0.0, 3.0]),
    kernels=st.sampled_from(["auto", "scalar", "reference"]),
)
def test_nothing_is_lost_bit_for_bit(recipe, seed, shape, momentum, nesterov, spread, kernels):
    generator = np.random.default_rng(seed)
    numel = int(np.prod(shape))
    parameter = parameter_of(recipe, shape, kernels)
    takes_momentum = recipe.takes_over_momentum and momentum > 0
    for step in range(6):
        gradient = generator.standard_normal(numel).astype(F) * np.exp(
            spread * generator.standard_normal(numel)
        ).astype(F)
        residual, velocity = state_of(parameter, numel)
        if takes_momentum and velocity is None:
            velocity = np.zeros(numel, F)
        accumulated, velocity = twin(residual, velocity, gradient, momentum, nesterov)
        decoded = send(parameter, gradient, step, momentum, nesterov)
        residual, new_velocity = state_of(parameter, numel)
        if isinstance(decoded, SparseGradient):
            expected = accumulated.copy()
            expected[decoded.indices] = accumulated[decoded.indices] - decoded.values
            if velocity is not None:
                velocity[decoded.indices] = 0
            keep = recipe.keep(numel, step)
            assert 1 <= decoded.count <= min(numel, 2 * keep + 16)
            assert not isinstance(recipe, TopK) or decoded.count == keep
        else:
            assert decoded.tobytes() == accumulated.tobytes()
            expected = np.zeros(numel, F)
        assert residual.tobytes() == expected.tobytes()
        if takes_momentum:
            assert new_velocity.tobytes() == velocity.tobytes()


@pytest.mark.parametrize("recipe", [TopK(density=0.1), GradSA(density=0.1, warmup_steps=0)])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_gradient_that_is_not_finite_changes_nothing(recipe, bad):
    parameter = parameter_of(recipe, (40, 40))
    generator = np.random.default_rng(0)
    send(parameter, generator.standard_normal(1600).astype(F), 0, momentum=0.9)
    before = state_of(parameter, 1600)
    gradient = generator.standard_normal(1600).astype(F)
    gradient[77] = bad
    metrics = Metrics()
    assert send(parameter, gradient, 1, momentum=0.9, metrics=metrics) is None
    after = state_of(parameter, 1600)
    assert metrics.nonfinite_frames == 1
    for old, new in zip(before, after, strict=True):
        assert (old is None and new is None) or old.tobytes() == new.tobytes()


def test_a_small_parameter_is_sent_whole_and_keeps_no_state():
    parameter = parameter_of(TopK(), (3,), sparse=False)
    assert send(parameter, np.array([1, 2, 3], F), 0).tolist() == [1, 2, 3]
    assert parameter.state_dict() == {}


@pytest.mark.parametrize("recipe", [TopK, GradSA])
@pytest.mark.parametrize("small", ["bfloat16", "int8"])
@pytest.mark.parametrize("numel", [1, 7, 1000])
def test_a_small_parameter_in_fewer_bits_loses_nothing_either(recipe, small, numel):
    """r = r + g; receivers see the coded r; what is left stays, bit for bit, and momentum stays the optimizer's."""
    generator = np.random.default_rng(numel)
    parameter = parameter_of(recipe(small=small), (numel,), sparse=False)
    code = VALUE_NAMES[small]
    for step in range(5):
        gradient = generator.standard_normal(numel).astype(F)
        accumulated = parameter.state_dict()["residual"] + gradient
        decoded = send(parameter, gradient, step, momentum=0.9)
        expected = np.empty(numel, F)
        code.encode(accumulated, np.empty(code.size(numel), np.uint8), expected, parameter.shared.kernels)
        assert decoded.tobytes() == expected.tobytes()
        assert parameter.state_dict()["residual"].tobytes() == (accumulated - decoded).tobytes()
        assert list(parameter.state_dict()) == ["residual"]


def test_small_codes_take_the_bytes_they_promise():
    gradient = np.random.default_rng(0).standard_normal(1000).astype(F)
    sizes = {}
    for small in ("float32", "bfloat16", "int8"):
        parameter = parameter_of(TopK(small=small), (1000,), sparse=False)
        parameter.shared.writer.begin(0, PLAN)
        parameter.compress(gradient, OptimizerStep(0), Metrics())
        sizes[small] = parameter.shared.writer.finish().size
    assert sizes == {"float32": 44 + 4000, "bfloat16": 44 + 2000, "int8": 44 + 1004}


def test_a_small_parameter_that_is_not_finite_keeps_its_residual():
    parameter = parameter_of(TopK(small="int8"), (3,), sparse=False)
    send(parameter, np.array([1, -2, 5], F), 0)
    before = parameter.state_dict()["residual"].copy()
    assert before.any()
    assert send(parameter, np.array([1, np.inf, 5], F), 1) is None
    assert parameter.state_dict()["residual"].tobytes() == before.tobytes()


def test_auto_writes_the_smallest_code_into_the_frame():
    parameter = parameter_of(TopK(density=0.5, indices="auto", values="float32"), (100, 10))
    mixed = np.random.default_rng(3).permutation(1000) < 500
    for wanted, name in ((mixed, "bitmap"), (np.arange(1000) < 500, "bitpack")):
        parameter.load_state_dict({})
        parameter.shared.writer.begin(0, PLAN)
        parameter.compress(np.where(wanted, F(2), F(1)), OptimizerStep(0), Metrics())
        (frame,) = read_message(parameter.shared.writer.finish(), 0, PLAN, 1, parameter.shared.kernels)
        assert INDEX_CODES[frame.index_code].name == name
        assert parameter.decode(frame).indices.tolist() == np.flatnonzero(wanted).tolist()


def test_zero_gradients_send_an_empty_frame():
    parameter = parameter_of(GradSA(density=0.1, warmup_steps=0), (40, 40))
    decoded = send(parameter, np.zeros(1600, F), 0)
    assert decoded.count == 0


def test_what_waits_is_sent_in_the_end():
    """With no new gradient, the residual drains until receivers have all of it."""
    recipe = TopK(density=0.1, values="float32")
    parameter = parameter_of(recipe, (10, 10))
    gradient = np.arange(1, 101, dtype=F)
    total = send(parameter, gradient, 0).to_dense()
    for step in range(1, 10):
        total += send(parameter, np.zeros(100, F), step).to_dense()
    assert total.tolist() == gradient.tolist()


def test_state_resumes_bit_for_bit():
    generator = np.random.default_rng(1)
    gradients = [generator.standard_normal(1600).astype(F) for _ in range(8)]
    recipe = GradSA(density=0.05, warmup_steps=3)
    straight, resumed = parameter_of(recipe, (40, 40)), parameter_of(recipe, (40, 40))
    sent = [send(straight, gradient, step, 0.9) for step, gradient in enumerate(gradients[:5])]
    resumed.load_state_dict(straight.state_dict())
    for step in range(5, 8):
        sent, again = send(straight, gradients[step], step, 0.9), send(resumed, gradients[step], step, 0.9)
        assert sent.indices.tobytes() == again.indices.tobytes()
        assert sent.values.tobytes() == again.values.tobytes()


@pytest.mark.parametrize(("density", "values"), [(1.0, "float16"), (1.0, "sign"), (0.5, "sign")])
def test_a_residual_that_overflows_is_named_and_training_goes_on(caplog, density, values):
    parameter = parameter_of(GradSA(density=density, values=values, warmup_steps=0), (40, 40))
    huge = np.ones(1600, F)
    huge[7] = 3e38
    with np.errstate(over="ignore"):
        sent = [send(parameter, huge, step, momentum=0.9) for step in range(4)]
    assert any(decoded is None for decoded in sent)
    assert "Parameter 'layer.weight': the residual has overflowed in 1 elements" in caplog.text
    assert send(parameter, np.ones(1600, F), 9, momentum=0.9) is not None
    assert all(np.isfinite(array).all() for array in parameter.feedback.state_dict().values())


def test_the_residual_of_a_small_parameter_resumes_bit_for_bit():
    gradients = np.random.default_rng(4).standard_normal((6, 50)).astype(F)
    straight, resumed = (parameter_of(GradSA(small="int8"), (50,), sparse=False) for _ in range(2))
    for step in range(3):
        send(straight, gradients[step], step)
    resumed.load_state_dict(straight.state_dict())
    for step in range(3, 6):
        sent, again = send(straight, gradients[step], step), send(resumed, gradients[step], step)
        assert sent.tobytes() == again.tobytes()
