"""Several ranks: the same bits everywhere, in any order, with parameters that some ranks skip."""

import logging
import threading
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparse_ring.config import Config
from sparse_ring.errors import MessageError, MismatchError
from sparse_ring.gradient import OptimizerStep, Pipeline, pipeline_of
from sparse_ring.recipe import DGC, ChunkTopK, GradSA, TopK
from tests.helpers import run_ranks

F = np.float32
KINDS = [
    TopK,
    GradSA,
    DGC,
    ChunkTopK,
    partial(TopK, scope="model"),
    partial(GradSA, compensation="taylor_adaptive+history"),
    partial(GradSA, compensation="taylor", momentum="global"),
]
SHAPES = [(7,), (40, 30), (1, 1), (16, 4, 3, 3), (200,)]


def gradients_of(seed, rank, step):
    generator = np.random.default_rng([seed, rank, step])
    return [generator.standard_normal(int(np.prod(shape))).astype(F) for shape in SHAPES]


def train(session, recipe, seed, steps=3, average=True, skipped=frozenset()):
    """Run a few steps; return the aggregates and the parameters. ``skipped``: (rank, parameter) without gradient."""
    shared = Pipeline(1, session.kernels, session.exchanges)
    parameters = [
        pipeline_of(shared, recipe, number, f"p{number}", shape, compressed=recipe.compresses(shape), in_message=True)
        for number, shape in enumerate(SHAPES)
    ]
    results = []
    for step in range(steps):
        order = np.random.default_rng([seed, session.rank, step]).permutation(len(SHAPES))
        gradients = gradients_of(seed, session.rank, step)
        handles = {}
        for number in order:
            absent = (session.rank, number) in skipped
            settings = OptimizerStep(step, 0.9, learning_rate=0.1, average=average)
            operation = parameters[number].operation(gradients[number], settings, absent)
            handles[number] = session.submit(operation)
        results.append([handles[number].wait() for number in range(len(SHAPES))])
    return results, parameters


@settings(deadline=None, max_examples=40)
@given(
    size=st.integers(1, 4),
    seed=st.integers(0, 2**31),
    kind=st.sampled_from(KINDS),
    density=st.sampled_from([0.01, 0.3, 1.0]),
    indices=st.sampled_from(["golomb", "auto"]),
    values=st.sampled_from(["float32", "float16", "sign", "bfloat16", "int8", "int3"]),
    small=st.sampled_from(["float32", "bfloat16", "int8"]),
    fusion=st.sampled_from([0, 1000, 1 << 23]),
    data=st.data(),
)
def test_all_ranks_get_the_same_bits(size, seed, kind, density, indices, values, small, fusion, data):
    skipped = data.draw(st.frozensets(st.tuples(st.integers(0, size - 1), st.integers(0, len(SHAPES) - 1)), max_size=6))
    recipe = kind(density=density, indices=indices, values=values, small=small, minimum_elements=10)

    def job(session):
        return train(session, recipe, seed, skipped=skipped)[0]

    ranks = run_ranks(size, job, Config(fusion_threshold=fusion))
    alone = run_ranks(size, job, Config(fusion_threshold=1 << 23))
    for rank in ranks + alone:
        for step, expected in zip(rank, ranks[0], strict=True):
            for number, (got, wanted) in enumerate(zip(step, expected, strict=True)):
                if all((r, number) in skipped for r in range(size)):
                    assert got is None
                else:
                    assert got.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("average", [True, False])
def test_the_aggregate_is_the_sum_in_rank_order(size, average):
    """At density 1 in float32 nothing is lost: each step's aggregate is that of the gradients themselves."""
    recipe = TopK(density=1.0, values="float32", minimum_elements=10)
    ranks = run_ranks(size, lambda session: train(session, recipe, 3, average=average)[0])
    scale = F(1 / size if average else 1)
    for step in range(3):
        for number in range(len(SHAPES)):
            expected = np.zeros(int(np.prod(SHAPES[number])), F)
            for rank in range(size):
                expected += gradients_of(3, rank, step)[number] * scale
            assert ranks[0][step][number].tobytes() == expected.tobytes()


def test_a_skipped_parameter_is_zeros_there_and_none_where_all_skip_it():
    recipe = TopK(density=1.0, values="float32", minimum_elements=10)
    skipped = frozenset({(0, 0), (0, 1), (1, 1)})
    first, second = run_ranks(2, lambda session: train(session, recipe, 3, steps=1, skipped=skipped)[0])
    assert first[0][1] is None
    assert second[0][1] is None
    expected = gradients_of(3, 1, 0)[0] * F(0.5)
    assert first[0][0].tobytes() == second[0][0].tobytes() == expected.tobytes()


def test_what_is_absent_everywhere_keeps_its_residual():
    recipe = TopK(density=0.01, minimum_elements=10)

    def job(session):
        _, parameters = train(session, recipe, 3, steps=1)
        before = parameters[1].feedback.accumulated.copy()
        operation = parameters[1].operation(np.ones(1200, F), OptimizerStep(1, 0.9), absent=True)
        assert session.submit(operation).wait() is None
        assert before.any()
        return before.tobytes() == parameters[1].feedback.accumulated.tobytes()

    assert run_ranks(2, job) == [True, True]


def test_a_rank_that_is_not_finite_is_left_out_and_named(caplog):
    recipe = TopK(density=1.0, values="float32", minimum_elements=10)

    def job(session):
        shared = Pipeline(1, session.kernels, session.exchanges)
        parameter = pipeline_of(shared, recipe, 0, "fc.weight", (4, 5), compressed=True, in_message=True)
        gradient = np.full(20, session.rank + 1, F)
        if session.rank == 1:
            gradient[3] = np.nan
        return session.submit(parameter.operation(gradient, OptimizerStep(0, average=False))).wait()

    with caplog.at_level(logging.WARNING, "sparse_ring"):
        results = run_ranks(3, job)
    assert [result.tolist() for result in results] == [[4.0] * 20] * 3
    said = [record.message for record in caplog.records if "not finite" in record.message]
    assert len(said) == 3
    assert said[0] == (
        "Step 0: the gradient of rank 1 is not finite for 'fc.weight'; its share is left out, its residual kept (time 1)."
    )


def test_other_recipes_on_other_ranks_are_refused_by_name():
    def job(session):
        recipe = TopK(density=0.1 if session.rank else 0.2, minimum_elements=10)
        with pytest.raises(MismatchError, match=r"'p0'.*density=0\.2.*density=0\.1"):
            train(session, recipe, 0, steps=1)
        return train(session, TopK(density=0.5, minimum_elements=10), 0, steps=1)[0][0][1].tobytes()

    first, second = run_ranks(2, job)
    assert first == second


def test_damage_names_rank_and_parameter():
    recipe = TopK(density=0.5, minimum_elements=10)

    def job(session):
        shared = Pipeline(1, session.kernels, session.exchanges)
        parameter = pipeline_of(shared, recipe, 0, "fc.weight", (4, 5), compressed=True, in_message=True)
        if session.rank == 1:
            finish = shared.writer.finish

            def damaged():
                message = finish()
                message[46] ^= 1
                return message

            shared.writer.finish = damaged
        gradient = np.ones(20, F)
        before = [float(parameter.feedback.accumulated.sum()), 20.0]
        with pytest.raises(MessageError, match=r"rank 1, parameter 'fc\.weight': frame 0 .* wrong checksum") as caught:
            session.submit(parameter.operation(gradient, OptimizerStep(0, average=False))).wait()
        # Nothing was applied, so nothing counts as sent: the whole gradient waits.
        after = float(parameter.feedback.accumulated.sum())
        return caught.value.rank, caught.value.parameter, [before[0], after] == [0.0, before[1]]

    assert run_ranks(2, job) == [(1, "fc.weight", True)] * 2


def test_a_rank_that_fails_before_it_sends_is_named_by_the_others():
    recipe = TopK(density=0.5, minimum_elements=10)

    def job(session):
        shared = Pipeline(1, session.kernels, session.exchanges)
        parameter = pipeline_of(shared, recipe, 0, "fc.weight", (4, 5), compressed=True, in_message=True)
        if session.rank == 1:
            parameter.compress = lambda *_: 1 / 0
        expected = ZeroDivisionError if session.rank == 1 else MessageError
        text = "division" if session.rank == 1 else "rank 1, parameter 'fc.weight': is empty: that rank failed"
        with pytest.raises(expected, match=text):
            session.submit(parameter.operation(np.ones(20, F), OptimizerStep(0, average=False))).wait()
        del parameter.__dict__["compress" if session.rank == 1 else "name"]
        parameter.name = "fc.weight"
        return session.submit(parameter.operation(np.ones(20, F), OptimizerStep(1, average=False))).wait().tolist()

    first, second = run_ranks(2, job)
    assert first == second


@pytest.mark.parametrize(
    ("first", "error", "text"),
    [
        (20, MessageError, r"is of step .*resume all ranks from one checkpoint"),
        # In another stage of the warm-up other numbers of elements travel, which shows before any do.
        (0, MismatchError, r"rank 0 had .* keep=60000 at this step, but rank 1 had .* keep=600 at this step"),
    ],
)
def test_ranks_at_different_steps_tell_each_other(first, error, text):
    recipe = GradSA(density=0.01, minimum_elements=10, warmup_steps=10)

    def job(session):
        shared = Pipeline(1, session.kernels, session.exchanges)
        handles = [
            session.submit(
                pipeline_of(shared, recipe, n, f"p{n}", (300, 200), compressed=True, in_message=True).operation(
                    np.ones(60_000, F), OptimizerStep(first + 50 * session.rank, 0.9)
                )
            )
            for n in range(3)
        ]  # fmt: skip
        for handle in handles:
            with pytest.raises(error, match=text):
                handle.wait()

    run_ranks(2, job, Config(fusion_threshold=200_000))


@pytest.mark.parametrize("absent", [False, True])
def test_preparing_changes_when_a_gradient_is_compressed_and_nothing_else(absent):
    """A rank that prepares all, in another order, sends and keeps what one that prepares nothing does."""
    recipe = GradSA(density=0.05, minimum_elements=10, warmup_steps=2)

    def job(session, prepare):
        shared = Pipeline(1, session.kernels, session.exchanges)
        parameters = [
            pipeline_of(shared, recipe, n, f"p{n}", (40, 30), compressed=True, in_message=True) for n in range(3)
        ]
        for step in range(5):
            operations = [
                parameter.operation(
                    np.random.default_rng([session.rank, step, n]).standard_normal(1200).astype(F),
                    OptimizerStep(step, 0.9), absent and session.rank == 1 and n == step % 3,
                )
                for n, parameter in enumerate(parameters)
            ]  # fmt: skip
            for operation in operations:
                operation.prepares = False
            if prepare:
                for operation in reversed(operations):
                    operation.prepare(session.engine.link)
            results = [handle.wait().tobytes() for handle in session.submit_all(operations)]
        return results, [parameter.feedback.accumulated.tobytes() for parameter in parameters]

    assert run_ranks(2, lambda session: job(session, True)) == run_ranks(2, lambda session: job(session, False))


def test_a_gradient_is_compressed_while_its_bucket_waits_for_more():
    """Before any rank is asked whether it has one."""

    def job(session):
        shared = Pipeline(1, session.kernels, session.exchanges)
        parameter = pipeline_of(shared, TopK(density=0.1), 0, "p", (40, 30), compressed=True, in_message=True)
        compressed = threading.Event()
        parameter.compress = lambda *arguments, real=parameter.compress: (real(*arguments), compressed.set())
        if session.rank == 1:
            return compressed.wait(0)
        session.submit(parameter.operation(np.ones(1200, F), OptimizerStep(0, average=True)))
        return compressed.wait(30)

    assert run_ranks(2, job, Config(cycle_time=1e6))[0]


def test_where_one_parameter_fails_to_compress_those_that_rode_are_shared_all_the_same():
    """On every rank alike: the others have its frames, so it may not keep what it sent."""
    recipe = TopK(density=0.1, values="float32", minimum_elements=10)

    def job(session):
        shared = Pipeline(1, session.kernels, session.exchanges)
        parameters = [
            pipeline_of(shared, recipe, n, f"p{n}", (40, 30), compressed=True, in_message=True) for n in range(3)
        ]
        if session.rank == 1:

            def failing(*arguments):
                raise MemoryError("no room")

            parameters[1].compress = failing
        handles = session.submit_all(
            [p.operation(np.ones(1200, F) + n, OptimizerStep(0, average=True)) for n, p in enumerate(parameters)]
        )
        results = [handles[0].wait().tobytes(), handles[2].wait().tobytes()]
        with pytest.raises(MemoryError if session.rank == 1 else MessageError):
            handles[1].wait()
        return results, [int(np.count_nonzero(parameters[n].feedback.accumulated)) for n in (0, 2)]

    first, second = run_ranks(2, job)
    assert first == second
    assert first[1] == [1080, 1080]
