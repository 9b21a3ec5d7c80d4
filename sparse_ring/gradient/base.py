"""One parameter's gradient on its way to the other ranks and back: the contract of its state and its operation.

How a gradient travels is the recipe's choice (``Recipe.way``); each way is one module here:

* ``gathered``: every rank's message goes to every rank, which adds what they hold in rank order (sparse and coded frames);
* ``owned``: each rank adds one part of the parameter, codes the sum again and sends it to all (coded whole parameters);
* ``agreed``: all ranks send the same positions, so that their values can be added on the way (random or a leader's positions);
* ``factored``: matrices as the product of two thin factors, which are added on the way (PowerSGD).

Dense recipes need none of this: the ring adds whole arrays (:class:`sparse_ring.exchange.allreduce.Allreduce`).
"""

from __future__ import annotations

import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sparse_ring.engine.link import Link
from sparse_ring.engine.operation import Operation, Request
from sparse_ring.error_feedback import ErrorFeedback
from sparse_ring.exchange.exchanges import Exchanges
from sparse_ring.kernels.base import Kernels
from sparse_ring.message import MessageWriter
from sparse_ring.recipe import Recipe
from sparse_ring.select import ModelThreshold, Scratch
from sparse_ring.sparse import SparseGradient

logger = logging.getLogger(__name__)

Floats = NDArray[np.float32]

# What a rank sent of a parameter: kept elements, all of them, or None where its gradient was not finite.
Decoded = SparseGradient | Floats | None


class Pipeline:
    """What the parameters of one optimizer share on a rank: kernels, exchanges, the message's buffer, the scratch.

    plan
        u32 hash of what the ranks agreed on; it travels in each message, and changes where parameters are added.
    owner
        Which optimizer, equal on all ranks: two of them may have equal plans, and yet messages of their own.
    rank, size
        This rank, and how many there are.
    """

    def __init__(
        self, plan: int, kernels: Kernels, exchanges: Exchanges, owner: str = "", rank: int = 0, size: int = 1
    ) -> None:
        self.plan, self.kernels, self.exchanges, self.owner = plan, kernels, exchanges, owner
        self.rank, self.size = rank, size
        self.writer = MessageWriter(kernels)
        self.scratch = Scratch()
        self.nonfinite: dict[int, int] = {}
        # Of recipes whose threshold is that of the whole model.
        self.thresholds: dict[Recipe, ModelThreshold] = {}

    def seed(self, seed: int) -> int:
        """Return a seed of this rank's own: errors of stochastic codes average out between ranks."""
        return seed * self.size + self.rank


@dataclass(frozen=True, slots=True)
class OptimizerStep:
    """What the optimizer says of one step, for one parameter.

    number
        Steps before this one.
    momentum, nesterov
        What the local velocity uses; 0 where the optimizer keeps its momentum.
    learning_rate
        With which the optimizer will apply the aggregate.
    average
        Divide by the number of ranks (Average), or not (Sum).
    """

    number: int = 0
    momentum: float = 0.0
    nesterov: bool = False
    learning_rate: float = 0.0
    average: bool = True


class ParameterPipeline(ABC):
    """One parameter's state on this rank, and the operation that shares its gradient.

    recipe
        From which its way is composed.
    number
        Its number on the wire.
    name
        As in errors; ``key`` is the operation's name, unique among all optimizers of the rank.
    feedback
        What it remembers of earlier gradients; None where everything is sent exactly.
    """

    def __init__(
        self, shared: Pipeline, recipe: Recipe, number: int, name: str, shape: tuple[int, ...], key: str | None = None
    ) -> None:
        self.shared, self.recipe, self.number, self.name = shared, recipe, number, name
        self.key = key or name
        self.shape, self.numel = shape, math.prod(shape)
        self.feedback: ErrorFeedback | None = None
        # What operations have said of it.
        self.requests: dict[Hashable, Request] = {}

    @abstractmethod
    def operation(self, gradient: Floats, step: OptimizerStep, absent: bool = False) -> Operation:
        """Return the operation that replaces ``gradient`` (``float32[numel]``) by the aggregate.

        ``absent``: this rank has none, and ``gradient`` is a place for that of the others.
        """

    def detail(self, step: int) -> str:
        """Return what must be the same on all ranks at an optimizer step besides the recipe, as text."""
        return ""

    def residual_norm(self) -> float:
        """Return the Euclidean norm of what was not sent yet; 0 without error feedback."""
        return 0.0 if self.feedback is None else self.feedback.residual_norm()

    def state_dict(self) -> dict[str, Any]:
        """Return residual, velocity and the like as arrays, not copied; empty without error feedback."""
        return {} if self.feedback is None else dict(self.feedback.state_dict())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over copies of what ``state_dict`` returned; an empty mapping starts afresh."""
        if self.feedback is not None:
            self.feedback.load_state_dict(state)

    def tell_aggregate(self, aggregate: Floats, touched: Sequence[NDArray[np.uint32]], step: OptimizerStep) -> None:
        """Tell error feedback that compensates for stale gradients what the optimizer will apply; see ``aggregated`` there."""
        if self.feedback is not None and self.feedback.compensates:
            part = 1.0 if step.average else 1.0 / self.shared.size
            self.feedback.aggregated(aggregate, touched, step.learning_rate, step.momentum, part)

    def drop_overflow(self, most: float = math.inf) -> None:
        """Drop what has added up beyond float32, or ``most`` in magnitude: it can't be sent, and would spoil all later steps."""
        assert self.feedback is not None
        if most < math.inf:
            self.feedback.accumulated[np.abs(self.feedback.accumulated) > most] = np.inf
        lost = self.feedback.drop_nonfinite()
        logger.error(
            "Parameter '%s': the residual has overflowed in %d elements, which start at zero.", self.name, lost
        )


class GradientOperation(Operation):
    """One step of one parameter: the engine's operation, whatever its way.

    gradient
        ``float32[numel]``, this rank's gradient; overwritten with the aggregate, which is the result (None where no rank had
        a gradient).
    absent
        This rank has none: where others have one, ``gradient`` is overwritten with zeros first.
    """

    KIND: ClassVar[str]
    prepares: ClassVar[bool] = True

    def __init__(
        self, parameter: ParameterPipeline, gradient: Floats, step: OptimizerStep, absent: bool = False
    ) -> None:
        self.gradient, self.step, self.absent = gradient, step, absent
        shared, detail = parameter.shared, parameter.detail(step.number)
        # Most steps ask for what the step before asked for: the same object, which is also quick to compare.
        key = (shared.plan, step.average, detail, absent)
        request = parameter.requests.get(key)
        if request is None:
            operation = "Average" if step.average else "Sum"
            request = parameter.requests[key] = Request(
                name=parameter.key,
                kind=self.KIND,
                dtype="float32",
                shape=parameter.shape,
                detail=f"op={operation} {parameter.recipe!r} plan={shared.plan:08x}{detail}",
                absent=absent,
            )
        self.request = request
        self.fusion = (self.KIND, shared.owner, shared.plan, step.average)

    def prepare(self, link: Link) -> None:
        """Take in the gradient. An absent one waits until it is known whether another rank has one."""
        if not self.absent:
            began, link.timeline.bucket = time.perf_counter(), self.request.name
            self.take_in(link)
            link.metrics.add_exchange(began)

    @abstractmethod
    def take_in(self, link: Link) -> None:
        """Do what needs no other rank, once however often it is called; keeps what fails for ``run`` to tell."""

    @property
    def fusion_key(self) -> Hashable:
        """Parameters of one optimizer that take the same way travel together."""
        return self.fusion
