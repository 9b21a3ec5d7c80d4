"""What a checkpoint holds of the exchange, under its own key of the optimizer's ``state_dict()``.

The arrays are this rank's own: keyed by parameter name, tagged with rank and number of ranks, float32 whatever the
parameter's dtype (torch's ``load_state_dict`` casts optimizer state, this key it never sees).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from sparse_ring import ops
from sparse_ring.optimizer.momentum import MomentumTakeover
from sparse_ring.optimizer.record import Record
from sparse_ring.optimizer.reducer import GradientReducer

KEY = "sparse_ring"
FORMAT = 1

logger = logging.getLogger(__name__)


def exchange_state(reducer: GradientReducer, takeover: MomentumTakeover) -> dict[str, Any]:
    """Return copies of residuals, velocities, what selectors keep, weight decay's momentum and the warm-up position."""
    parameters = {}
    for record in reducer.records:
        state = record.pipeline.state_dict() if record.pipeline is not None else {}
        entry = {name: torch.tensor(value) if isinstance(value, np.ndarray) else value for name, value in state.items()}
        if record.name in takeover.decay_buffers:
            entry["weight_decay_buffer"] = takeover.decay_buffers[record.name].clone()
        if entry:
            parameters[record.name] = entry
    session = reducer.session
    return {
        "format": FORMAT,
        "rank": session.rank,
        "size": session.size,
        "step": reducer.step,
        "parameters": parameters,
    }


def load_exchange_state(state: Mapping[str, Any], reducer: GradientReducer, takeover: MomentumTakeover) -> None:
    """Take over what ``exchange_state`` returned.

    The warm-up position and weight decay's momentum are the same on all ranks and always taken. Residuals, velocities and
    what selectors keep of another rank, or of a run with another number of ranks, are not this rank's: they start at zero, and a
    warning says what norm was lost. Raises ValueError for an unknown format or a parameter of another size.
    """
    if state.get("format") != FORMAT:
        raise ValueError(f"state_dict()['{KEY}'] has format {state.get('format')}, but this version reads {FORMAT}.")
    session = reducer.session
    reducer.step = int(state["step"])
    takeover.decay_buffers.clear()
    own = (state["rank"], state["size"]) == (session.rank, session.size)
    lost = 0.0
    for record in reducer.records:
        entry = dict(state["parameters"].get(record.name, {}))
        decay = entry.pop("weight_decay_buffer", None)
        if decay is not None:
            takeover.decay_buffers[record.name] = decay.to(record.parameter.device).clone()
        for name in ("residual", "velocity"):
            if name in entry:
                lost += float(torch.linalg.vector_norm(entry[name].double())) ** 2
        if own and "velocity" not in entry:
            # Saved under a recipe that left the momentum with the optimizer.
            _load(record, entry)
            takeover.start_from_momentum(record)
        else:
            _load(record, entry if own else {})
    unknown = sorted(set(state["parameters"]) - {record.name for record in reducer.records})
    if unknown:
        logger.warning(
            "Rank %d: the state of %d parameters is left out, as this optimizer has none of their names: %s.",
            session.rank, len(unknown), ", ".join(unknown[:5]),
        )  # fmt: skip
    takeover.forget_momentum()
    if not own and lost > 0:
        logger.warning(
            "Rank %d of %d loads the state of rank %d of %d: residuals and velocities with a norm of %.3g are lost. "
            "Let each rank save and load its own state to keep them.",
            session.rank, session.size, state["rank"], state["size"], math.sqrt(lost),
        )  # fmt: skip


def start_from_momentum(takeover: MomentumTakeover, reducer: GradientReducer) -> None:
    """After a plain torch ``state_dict`` was loaded: residuals start at zero, velocities from the momentum buffers."""
    takeover.decay_buffers.clear()
    for record in reducer.records:
        _load(record, {})
        takeover.start_from_momentum(record)


def common_state(reducer: GradientReducer, takeover: MomentumTakeover) -> dict[str, Any]:
    """Return what must be equal on all ranks: warm-up position, weight decay's momentum, velocities that are still plain."""
    velocities = {}
    for record in reducer.records:
        if record.name in takeover.fresh and record.pipeline is not None:
            state = record.pipeline.state_dict()
            # Without a velocity, what the plain momentum makes of the next step waits in the residual.
            velocities[record.name] = {key: state[key] for key in ("velocity",) if key in state} or {
                "residual": state["residual"]
            }
    return {"step": reducer.step, "decay_buffers": dict(takeover.decay_buffers), "velocities": velocities}


def load_common_state(state: Mapping[str, Any], reducer: GradientReducer, takeover: MomentumTakeover) -> None:
    """Take over the root's ``common_state``."""
    reducer.step = state["step"]
    takeover.decay_buffers = dict(state["decay_buffers"])
    takeover.fresh = set(state["velocities"])
    for record in reducer.records:
        if record.name in takeover.fresh and record.pipeline is not None:
            record.pipeline.load_state_dict({**record.pipeline.state_dict(), **state["velocities"][record.name]})


def folded_state(
    common: Mapping[str, Any], states: Sequence[Mapping[str, Any]], size: int, reducer: GradientReducer
) -> dict[str, Any]:
    """Return this rank's part of the state of ``size`` ranks on another number of ranks.

    ``states`` are those that fold into this rank (none, where there are more ranks now); step and weight decay's momentum are
    the same on all ranks and come from ``common``. Residuals and velocities add up; under Average they are scaled by the ratio
    of the numbers of ranks, so that their mean over all ranks stays. The history of aggregates is the same on all ranks. Thresholds
    start afresh.
    """
    session = reducer.session
    scale = session.size / size if reducer.average else 1.0
    parameters: dict[str, dict[str, Any]] = {}
    for name, entry in common["parameters"].items():
        same = {key: entry[key] for key in ("weight_decay_buffer", "history") if key in entry}
        if same:
            parameters[name] = same
    for state in states:
        for name, entry in state["parameters"].items():
            folded = parameters.setdefault(name, {})
            for key in ("residual", "velocity"):
                if key in entry:
                    folded[key] = folded.get(key, 0) + entry[key] * scale
    rank, step = session.rank, common["step"]
    return {"format": FORMAT, "rank": rank, "size": session.size, "step": step, "parameters": parameters}


def plain_state(optimizer: Any) -> dict[str, Any]:
    """Return the optimizer's ``state_dict()`` as plain torch has it; collective.

    A momentum that a recipe took over is given back: SGD's recursion is linear, so its buffer is the ranks' mean velocity
    plus weight decay's own.
    """
    state = torch.optim.Optimizer.state_dict(optimizer)
    takeover, session = optimizer._takeover, optimizer._reducer.session
    numbers = {id(p): n for n, p in enumerate(p for group in optimizer.param_groups for p in group["params"])}
    for record in optimizer._reducer.records:
        if id(record.parameter) not in takeover.taken:
            continue
        assert record.pipeline is not None
        velocity = record.pipeline.state_dict().get("velocity")
        local = torch.zeros(record.planned.numel) if velocity is None else torch.tensor(velocity)
        buffer = ops.allreduce(local, name=f"{record.key}.velocity", session=session).view(record.parameter.shape)
        decay = takeover.decay_buffers.get(record.name)
        buffer = buffer.to(record.parameter) if decay is None else buffer.to(record.parameter) + decay
        number = numbers[id(record.parameter)]
        state["state"][number] = {**state["state"].get(number, {}), "momentum_buffer": buffer}
    return state


def _load(record: Record, entry: Mapping[str, Any]) -> None:
    if record.pipeline is None:
        return
    state = {name: value.numpy() if isinstance(value, torch.Tensor) else value for name, value in entry.items()}
    try:
        record.pipeline.load_state_dict(state)
    except ValueError as error:
        raise ValueError(f"Parameter '{record.name}': {error}") from None
