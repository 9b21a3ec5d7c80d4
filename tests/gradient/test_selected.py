"""Ways to select: nothing is lost bit for bit, and never more is sent than was promised."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparse_ring.exchange.exchanges import Exchanges
from sparse_ring.gradient import OptimizerStep, Pipeline, pipeline_of
from sparse_ring.gradient.selected import clip
from sparse_ring.kernels.table import kernels_for
from sparse_ring.message import read_message
from sparse_ring.observe.metrics import Metrics
from sparse_ring.recipe import DGC, ChunkTopK, GradSA, Threshold, TopK
from sparse_ring.sparse import SparseGradient
from tests.gradient.test_framed import PLAN, parameter_of, send, state_of, twin

F = np.float32

recipes = st.one_of(
    st.builds(DGC, density=st.sampled_from([0.001, 0.1]), warmup_steps=st.sampled_from([0, 3]), clip=st.sampled_from([None, 5.0])),
    st.builds(Threshold, threshold=st.sampled_from([1e-3, 1.0, 3.0, 100.0]), most_density=st.sampled_from([0.001, 0.1, 0.5])),
    st.builds(ChunkTopK, density=st.sampled_from([0.0001, 0.01, 0.3, 1.0])),
    st.builds(TopK, density=st.sampled_from([0.001, 0.1, 0.5]), scope=st.just("model")),
    st.builds(GradSA, density=st.sampled_from([0.001, 0.1]), scope=st.just("model"), warmup_steps=st.sampled_from([0, 3])),
)  # fmt: skip


def clipped(gradient, recipe, size):
    """The gradient that accumulation gets; the norm is not exact, so the very scale is taken over."""
    most = recipe.clip_norm(size)
    if most is None:
        return gradient
    scaled = gradient.copy()
    clip(scaled, most)
    norm = np.linalg.norm(gradient.astype(np.float64))
    assert np.allclose(scaled, gradient * min(1.0, most / norm), rtol=1e-5)
    return scaled


@settings(deadline=None, max_examples=80)
@given(
    recipe=recipes,
    seed=st.integers(0, 2**32 - 1),
    shape=st.sampled_from([(1, 2), (32, 32), (2, 3, 5, 7), (100, 100)]),
    momentum=st.sampled_from([0.0, 0.9]),
    nesterov=st.booleans(),
    spread=st.sampled_from([0.0, 3.0]),
    kernels=st.sampled_from(["auto", "scalar", "reference"]),
)
def test_nothing_is_lost_bit_for_bit(recipe, seed, shape, momentum, nesterov, spread, kernels):
    generator, numel = np.random.default_rng(seed), int(np.prod(shape))
    parameter = parameter_of(recipe, shape, kernels)
    takes_momentum = recipe.takes_over_momentum and momentum > 0
    for step in range(6):
        scales = np.exp(spread * generator.standard_normal(numel)).astype(F)
        gradient = generator.standard_normal(numel).astype(F) * scales
        residual, velocity = state_of(parameter, numel)
        if takes_momentum and velocity is None:
            velocity = np.zeros(numel, F)
        accumulated, velocity = twin(residual, velocity, clipped(gradient, recipe, 1), momentum, nesterov)
        decoded = send(parameter, gradient.copy(), step, momentum, nesterov)
        residual, new_velocity = state_of(parameter, numel)
        expected = accumulated.copy()
        if isinstance(decoded, SparseGradient):
            expected[decoded.indices] = accumulated[decoded.indices] - decoded.values
            if velocity is not None:
                velocity[decoded.indices] = 0
            assert decoded.count <= parameter.selector.most(recipe.keep(numel, step), numel)
        else:
            assert recipe.keep(numel, step) == numel
            expected[:] = 0
        assert residual.tobytes() == expected.tobytes()
        if takes_momentum:
            assert new_velocity.tobytes() == velocity.tobytes()


@settings(deadline=None, max_examples=40)
@given(recipe=recipes, seed=st.integers(0, 2**32 - 1), indices=st.sampled_from(["golomb", "auto"]))
def test_frames_keep_within_their_bound(recipe, seed, indices):
    """What ranks reserve for a frame is enough, whatever was selected."""
    generator = np.random.default_rng(seed)
    recipe = replace(recipe, indices=indices)
    parameter = parameter_of(recipe, (100, 100))
    for step in range(5):
        gradient = (generator.standard_normal(10_000) * 10.0 ** generator.uniform(-4, 4)).astype(F)
        parameter.shared.writer.begin(step, PLAN)
        parameter.compress(gradient, OptimizerStep(step, 0.9), Metrics())
        assert parameter.shared.writer.frames().size <= parameter.frame_bound(step)
        (frame,) = read_message(parameter.shared.writer.finish(), step, PLAN, 1, parameter.shared.kernels)
        parameter.sent(parameter.decode(frame))


@pytest.mark.parametrize(
    "recipe",
    [
        DGC(density=0.05, warmup_steps=2, clip=3.0),
        DGC(density=0.05, warmup_steps=2, scope="model"),
        Threshold(threshold=2.0),
        ChunkTopK(),
        TopK(density=0.05, scope="model"),
        GradSA(density=0.05, warmup_steps=4, scope="model"),
    ],
)
def test_state_resumes_bit_for_bit(recipe):
    gradients = np.random.default_rng(1).standard_normal((10, 20_000)).astype(F)
    straight, resumed = parameter_of(recipe, (200, 100)), parameter_of(recipe, (200, 100))
    for step in range(5):
        send(straight, gradients[step].copy(), step, 0.9)
    resumed.load_state_dict(straight.state_dict())
    for step in range(5, 10):
        sent, again = (send(one, gradients[step].copy(), step, 0.9) for one in (straight, resumed))
        assert sent.indices.tobytes() == again.indices.tobytes()
        assert sent.values.tobytes() == again.values.tobytes()


def test_parameters_of_one_optimizer_share_the_threshold_and_another_recipe_has_its_own():
    table = kernels_for("auto")
    shared = Pipeline(PLAN, table, Exchanges(table))
    made = [
        pipeline_of(shared, recipe, number, f"p{number}", (100, 100), compressed=True, in_message=True)
        for number, recipe in enumerate([TopK(scope="model"), TopK(scope="model"), TopK(scope="model", density=0.1)])
    ]
    generator = np.random.default_rng(0)
    for step in range(25):
        counts = [
            send_numbered(one, generator.standard_normal(10_000).astype(F) * F(scale), step).count
            for one, scale in zip(made, (1.5, 1.0, 1.0), strict=True)
        ]
    assert counts[0] > 1.5 * counts[1] > 0
    assert counts[0] + counts[1] == pytest.approx(200, rel=0.3)
    assert counts[2] == pytest.approx(1000, rel=0.3)


def send_numbered(parameter, gradient, step):
    """As ``send``, for a parameter with another number than 0."""
    parameter.shared.writer.begin(step, PLAN)
    parameter.compress(gradient, OptimizerStep(step), Metrics())
    (frame,) = read_message(parameter.shared.writer.finish(), step, PLAN, 1, parameter.shared.kernels)
    decoded = parameter.decode(frame)
    parameter.sent(decoded)
    return decoded


def test_dgc_does_what_its_authors_code_does():
    """Written as there: u in place of ours times the momentum, both cleared where sent; values in float32."""
    recipe = DGC(density=0.05, warmup_steps=0, values="float32")
    for nesterov in (False, True):
        parameter = parameter_of(recipe, (40, 30))
        memory, total = np.zeros(1200), np.zeros(1200)
        generator = np.random.default_rng(2)
        for step in range(12):
            gradient = generator.standard_normal(1200)
            if nesterov:
                memory = (memory + gradient) * 0.9
                total = total + memory + gradient
            else:
                memory = memory * 0.9 + gradient
                total = total + memory
            sent = send(parameter, gradient.astype(F), step, 0.9, nesterov)
            assert np.allclose(sent.values, total[sent.indices], rtol=1e-4, atol=1e-5)
            memory[sent.indices] = total[sent.indices] = 0
            assert np.allclose(parameter.feedback.accumulated, total, rtol=1e-4, atol=1e-5)


def test_clipping_is_by_the_number_of_ranks():
    assert DGC(clip=6.0).clip_norm(9) == pytest.approx(2.0)
    assert DGC().clip_norm(9) is None
    table = kernels_for("auto")
    recipe = DGC(density=0.5, warmup_steps=0, clip=6.0)
    shared = Pipeline(PLAN, table, Exchanges(table), "", 0, 9)
    parameter = pipeline_of(shared, recipe, 0, "layer.weight", (40, 30), compressed=True, in_message=True)
    gradient = np.zeros(1200, F)
    gradient[:2] = [30, 40]
    # A norm of 50 becomes 6 / 3.
    sent = send(parameter, gradient, 0, 0.9)
    assert sent.indices.tolist() == [0, 1]
    assert sent.values.tolist() == pytest.approx([1.2, 1.6], rel=1e-3)


@pytest.mark.parametrize(
    ("gradient", "most", "expected"),
    [([3, 4], 5.0, [3, 4]), ([3, 4], 2.5, [1.5, 2]), ([3e30, 4e30], 5.0, [3, 4]), ([0, 0], 1.0, [0, 0])],
)
def test_clip_scales_to_the_norm(gradient, most, expected):
    array = np.array(gradient, F)
    with np.errstate(over="ignore"):
        clip(array, most)
    assert array.tolist() == pytest.approx(expected, rel=1e-6)
