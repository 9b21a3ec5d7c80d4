"""What every recipe promises, whichever way its gradients travel; ``tests/recipe/test_contract.py`` runs it over all of them.

* Replicas: every rank gets the same bits, and so does every rank when nothing shares a bucket.
* Kernels: the NumPy twin and every native implementation give the same bits.
* Conservation: over all ranks, what came in is what was applied and what waits, up to float32 rounding.
* Checkpoints: parameters that load another's state go on with the same bits.
* A rank whose gradient is not finite is left out and keeps its residual; nothing of the others' is lost.
* A parameter that some ranks skip is zeros there, one that all skip keeps its residual.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sparse_ring import _native
from sparse_ring.config import Config
from sparse_ring.gradient import OptimizerStep, ParameterPipeline, Pipeline, pipeline_of
from sparse_ring.recipe import GradSA, QuantizedRecipe, Recipe
from sparse_ring.session import Session
from tests.helpers import run_ranks

F = np.float32
SHAPES = [(7,), (40, 30), (16, 4, 3, 3), (5, 100), (200,)]
MOMENTUM = 0.9

Arrays = list[NDArray[np.float32] | None]


def gradients_of(seed: int, rank: int, step: int) -> list[NDArray[np.float32]]:
    """Return one rank's gradients: noise around a mean that the ranks share, heavy tails."""
    shared = np.random.default_rng([seed, 99])
    own = np.random.default_rng([seed, rank, step])
    found = []
    for shape in SHAPES:
        numel = int(np.prod(shape))
        found.append((shared.standard_normal(numel) + own.standard_normal(numel) ** 3).astype(F))
    return found


def parameters_of(session: Session, recipe: Recipe) -> list[ParameterPipeline | None]:
    """Return fresh parameters of all shapes; None for those that take the dense ring."""
    shared = Pipeline(1, session.kernels, session.exchanges, "", session.rank, session.size)
    return [
        pipeline_of(
            shared, recipe, number, f"p{number}", shape,
            compressed=recipe.compresses(shape), in_message=recipe.sends_messages(),
        )
        for number, shape in enumerate(SHAPES)
    ]  # fmt: skip


def step_of(
    session: Session,
    parameters: list[ParameterPipeline | None],
    gradients: list[NDArray[np.float32]],
    settings: OptimizerStep,
    absent: frozenset[int] = frozenset(),
) -> Arrays:
    """Share one step's gradients, in an order of this rank's own; returns the aggregates."""
    order = np.random.default_rng([session.rank, settings.number]).permutation(len(parameters))
    handles = {}
    for number in order:
        parameter = parameters[number]
        if parameter is not None:
            operation = parameter.operation(gradients[number].copy(), settings, int(number) in absent)
            handles[int(number)] = session.submit(operation)
    return [handles[number].wait() if number in handles else None for number in range(len(parameters))]


def train(session: Session, recipe: Recipe, seed: int, steps: int = 4, average: bool = True) -> list[Arrays]:
    """Run a few steps with momentum; returns the aggregates."""
    parameters = parameters_of(session, recipe)
    return [
        step_of(
            session,
            parameters,
            gradients_of(seed, session.rank, step),
            OptimizerStep(step, MOMENTUM, False, 0.1, average),
        )
        for step in range(steps)
    ]


def bits(aggregates: list[Arrays]) -> list[list[bytes | None]]:
    """Return aggregates so that they compare by bits."""
    return [[None if array is None else array.tobytes() for array in step] for step in aggregates]


def check_replicas(recipe: Recipe, size: int, seed: int, average: bool = True) -> None:
    """Every rank gets the same bits, fused or not, and something arrives."""
    fused, alone = (
        run_ranks(size, lambda session: train(session, recipe, seed, average=average), Config(fusion_threshold=most))
        for most in (1 << 23, 0)
    )
    for rank in fused + alone:
        assert bits(rank) == bits(fused[0])
    for step in fused[0]:
        for array in step:
            assert array is None or (np.isfinite(array).all() and array.any())


def check_kernels(recipe: Recipe, seed: int) -> None:
    """Every implementation of the kernels that runs here gives the same bits, the NumPy twin among them."""
    expected = None
    for name in ("reference", *_native.supported()):
        found = bits(run_ranks(2, lambda session: train(session, recipe, seed, steps=2), Config(kernels=name))[0])
        expected = expected or found
        assert found == expected, f"{name} differs from the NumPy twin"


def check_conservation(recipe: Recipe, size: int, seed: int, average: bool) -> None:
    """Over all ranks, without momentum, which would add to what came in: inputs = applied + what waits, for each element."""
    steps = 5

    def job(session: Session) -> tuple[list[NDArray[np.float64]], list[NDArray[np.float32] | None]]:
        parameters = parameters_of(session, recipe)
        applied = [np.zeros(int(np.prod(shape))) for shape in SHAPES]
        for step in range(steps):
            gradients = gradients_of(seed, session.rank, step)
            settings = OptimizerStep(step, 0.0, False, 0.1, average)
            for total, array in zip(applied, step_of(session, parameters, gradients, settings), strict=True):
                if array is not None:
                    total += array.astype(np.float64) * (session.size if average else 1)
        waits = [
            None if one is None else np.zeros(1, F) if one.feedback is None else one.feedback.accumulated.copy()
            for one in parameters
        ]
        return applied, waits

    ranks = run_ranks(size, job)
    for number, waiting in enumerate(ranks[0][1]):
        if waiting is None:
            continue
        came = sum(
            gradients_of(seed, rank, step)[number].astype(np.float64) for rank in range(size) for step in range(steps)
        )
        scale = sum(np.abs(gradients_of(seed, rank, step)[number]) for rank in range(size) for step in range(steps))
        kept = sum(rank[1][number].astype(np.float64) for rank in ranks)
        off = np.abs(ranks[0][0][number] + kept - came)
        # Each of a few roundings a step and rank is at most 2**-24 of what was added up.
        assert (off <= 2.0**-20 * (scale.max() + 1)).all(), f"p{number}: {off.max()} of {scale.max()}"


def check_checkpoint(recipe: Recipe, size: int, seed: int) -> None:
    """Fresh parameters that load the state go on with the same bits."""

    def job(session: Session) -> tuple[list[bytes | None], list[bytes | None]]:
        first, second = parameters_of(session, recipe), parameters_of(session, recipe)
        for step in range(3):
            step_of(session, first, gradients_of(seed, session.rank, step), OptimizerStep(step, MOMENTUM, False, 0.1))
        for old, new in zip(first, second, strict=True):
            if old is not None and new is not None:
                new.load_state_dict(old.state_dict())
        settings, gradients = OptimizerStep(3, MOMENTUM, False, 0.1), gradients_of(seed, session.rank, 3)
        went_on = bits([step_of(session, first, gradients, settings)])[0]
        return went_on, bits([step_of(session, second, gradients, settings)])[0]

    for went_on, loaded in run_ranks(size, job):
        assert went_on == loaded


def check_nonfinite(recipe: Recipe, size: int, seed: int) -> None:
    """One rank's gradients are not finite: all get the same finite bits, and nothing of the others' is lost."""

    def job(
        session: Session,
    ) -> tuple[Arrays, list[dict[str, NDArray[np.float32]]], list[dict[str, NDArray[np.float32]]]]:
        parameters = parameters_of(session, recipe)
        step_of(session, parameters, gradients_of(seed, session.rank, 0), OptimizerStep(0))
        before = [
            {} if one is None else {name: np.copy(x) for name, x in one.state_dict().items()} for one in parameters
        ]
        gradients = gradients_of(seed, session.rank, 1)
        if session.rank == size - 1:
            for gradient in gradients:
                gradient[3] = np.nan
        found = step_of(session, parameters, gradients, OptimizerStep(1))
        after = [
            {} if one is None else {name: np.copy(x) for name, x in one.state_dict().items()} for one in parameters
        ]
        return found, before, after

    ranks = run_ranks(size, job)
    for number in range(len(SHAPES)):
        found = ranks[0][0][number]
        if found is None:
            continue
        assert np.isfinite(found).all()
        assert all(rank[0][number].tobytes() == found.tobytes() for rank in ranks)
        before, after = ([rank[place][number] for rank in ranks] for place in (1, 2))
        owners = isinstance(recipe, QuantizedRecipe) and recipe.has_owners(size)
        compensated = isinstance(recipe, GradSA) and recipe.compensation != "none"
        for name in {"residual", "velocity"} & before[-1].keys():
            # What a second coding loses waits at the part's owner, whose own gradient has no part in it. Compensation is for what
            # the other ranks have applied.
            assert owners or compensated or np.array_equal(before[-1][name], after[-1][name]), (
                f"p{number}: {name} has changed"
            )
        if not recipe.exempt and "residual" in before[0]:
            came = sum(gradients_of(seed, rank, 1)[number].astype(np.float64) for rank in range(size - 1))
            kept = sum(
                new["residual"].astype(np.float64) - old["residual"] for old, new in zip(before, after, strict=True)
            )
            assert np.abs(found * float(size) + kept - came).max() <= 2.0**-18 * (np.abs(came).max() + 1)


def check_absent(recipe: Recipe, size: int, seed: int) -> None:
    """What some ranks skip is shared; what all skip stays None and keeps its residual."""

    def job(session: Session) -> tuple[list[bytes | None], bool]:
        parameters = parameters_of(session, recipe)
        settings = OptimizerStep(0, MOMENTUM, False, 0.1)
        step_of(session, parameters, gradients_of(seed, session.rank, 0), settings)
        before = [None if one is None else one.residual_norm() for one in parameters]
        skipped = frozenset({1} if session.rank else {1, 2})
        found = step_of(
            session, parameters, gradients_of(seed, session.rank, 1), OptimizerStep(1, MOMENTUM, False, 0.1), skipped
        )
        assert found[1] is None
        after = None if parameters[1] is None else parameters[1].residual_norm()
        return bits([found])[0], before[1] == after

    ranks = run_ranks(size, job)
    assert all(rank == ranks[0] for rank in ranks)
    assert ranks[0][1]
    if size > 1 and recipe.compresses(SHAPES[2]):
        assert ranks[0][0][2] is not None
