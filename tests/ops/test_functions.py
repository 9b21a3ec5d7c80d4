from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
import torch

from sparse_ring import functions
from sparse_ring.errors import MismatchError
from sparse_ring.session import Session
from tests.helpers import run_ranks


def model_of(rank: int) -> torch.nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(rank)
        return torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.Linear(4, 3)).to(
            memory_format=torch.channels_last
        )


MODELS = [model_of(rank) for rank in range(3)]
HASHES = [functions.parameter_hash(model.parameters()) for model in MODELS]


@pytest.mark.parametrize("form", ["state_dict", "named", "list", "pairs"])
def test_broadcast_parameters_takes_every_form(form: str) -> None:
    models = [model_of(rank) for rank in range(3)]
    forms: dict[str, Any] = {
        "state_dict": lambda model: model.state_dict(),
        "named": lambda model: model.named_parameters(),
        "list": lambda model: list(model.parameters()),
        "pairs": lambda model: [*model.named_parameters(), ("nothing", None)],
    }

    def call(session: Session) -> str:
        model = models[session.rank]
        functions.broadcast_parameters(forms[form](model), root_rank=1, session=session)
        return functions.parameter_hash(model.parameters())

    assert len(set(HASHES)) == 3
    assert run_ranks(3, call) == [HASHES[1]] * 3


def test_broadcast_parameters_refuses_what_is_no_tensor() -> None:
    def call(session: Session) -> str:
        with pytest.raises(ValueError) as caught:
            functions.broadcast_parameters(OrderedDict(extra={"a": 1}), root_rank=0, session=session)
        return str(caught.value)

    assert run_ranks(1, call) == ["Parameter 'extra' is a dict, not a tensor; send it with broadcast_object()."]


def test_broadcast_parameters_of_different_shapes_is_an_error_on_all_ranks() -> None:
    def call(session: Session) -> float:
        tensors = {"a": torch.full((2 + session.rank,), 5.0), "b": torch.full((2,), float(session.rank))}
        with pytest.raises(MismatchError, match=r"broadcast_parameters\.a"):
            functions.broadcast_parameters(tensors, root_rank=1, session=session)
        return tensors["b"].sum().item()

    assert run_ranks(2, call) == [2.0, 2.0]


OPTIMIZERS: dict[str, Any] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True),
    "adam with a tensor": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.1), weight_decay=0.1),
    "lbfgs": lambda p: torch.optim.LBFGS(p, max_iter=3),
    "adafactor-like": lambda p: torch.optim.RMSprop(
        [{"params": [next(p)], "lr": 0.5}, {"params": list(p)}], centered=True
    ),
}


def bits(optimizer: torch.optim.Optimizer) -> str:
    """Describe all of an optimizer's state, tensors by their bits."""

    def describe(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return (str(value.dtype), value.device.type, functions.parameter_hash([value]))
        if isinstance(value, dict):
            return {key: describe(entry) for key, entry in value.items()}
        return [describe(entry) for entry in value] if isinstance(value, list) else value

    return repr(describe(optimizer.state_dict()))


def take_steps(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = sum((parameter**2).sum() for parameter in model.parameters())
        assert isinstance(loss, torch.Tensor)
        loss.backward()
        return loss

    for _ in range(2):
        optimizer.step(closure)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("others", ["fresh", "stepped"])
def test_optimizer_state_becomes_the_roots_and_weights_stay(kind: str, others: str) -> None:
    models = [model_of(rank) for rank in range(3)]
    optimizers = [OPTIMIZERS[kind](model.parameters()) for model in models]
    take_steps(models[1], optimizers[1])
    optimizers[1].param_groups[0]["lr"] = 0.025
    if others == "stepped":
        take_steps(models[0], optimizers[0])
        take_steps(models[2], optimizers[2])
    expected = bits(optimizers[1])
    before = [functions.parameter_hash(model.parameters()) for model in models]

    def call(session: Session) -> tuple[str, str]:
        model, optimizer = models[session.rank], optimizers[session.rank]
        functions.broadcast_optimizer_state(optimizer, root_rank=1, session=session)
        return bits(optimizer), functions.parameter_hash(model.parameters())

    results = run_ranks(3, call)
    assert [state for state, _ in results] == [expected] * 3
    assert [weights for _, weights in results] == before
    take_steps(models[0], optimizers[0])


def test_optimizer_state_in_another_dtype_than_the_parameter_is_not_cast() -> None:
    parameters = [torch.zeros(3, dtype=torch.bfloat16) for _ in range(2)]
    optimizers = [torch.optim.SGD([parameter], lr=1.0, momentum=0.5) for parameter in parameters]
    optimizers[0].state[parameters[0]] = {"master": torch.full((3,), 0.1), "note": "kept", "nothing": None}

    def call(session: Session) -> Any:
        functions.broadcast_optimizer_state(optimizers[session.rank], root_rank=0, model=None, session=session)
        return optimizers[session.rank].state[parameters[session.rank]]

    for state in run_ranks(2, call):
        assert state["master"].tolist() == torch.full((3,), 0.1).tolist()
        assert state["master"].dtype == torch.float32
        assert (state["note"], state["nothing"]) == ("kept", None)


def test_the_root_may_have_no_state() -> None:
    models = [model_of(rank) for rank in range(2)]
    optimizers = [OPTIMIZERS["adam"](model.parameters()) for model in models]
    take_steps(models[1], optimizers[1])

    def call(session: Session) -> int:
        functions.broadcast_optimizer_state(optimizers[session.rank], root_rank=0, session=session)
        return len(optimizers[session.rank].state)

    assert run_ranks(2, call) == [0, 0]


def test_different_optimizers_are_an_error_on_all_ranks() -> None:
    def call(session: Session) -> str:
        optimizer = torch.optim.SGD([torch.zeros(2 + (session.rank == 2))], lr=0.1)
        with pytest.raises(MismatchError) as caught:
            functions.broadcast_optimizer_state(optimizer, root_rank=0, session=session)
        return str(caught.value)

    text = (
        "Tensor 'broadcast_optimizer_state': the optimizers of ranks [2] hold other parameters (number, shapes or groups) "
        "than rank 0's. Build the same optimizer on all ranks."
    )
    assert run_ranks(3, call) == [text] * 3


def test_objects_travel_by_value() -> None:
    def call(session: Session) -> Any:
        own = {"rank": session.rank, "many": list(range(1000 * session.rank))}
        roots = functions.broadcast_object(own, root_rank=session.size - 1, session=session)
        everyone = functions.allgather_object(own, session=session)
        nothing = functions.broadcast_object(None, name="nothing", session=session)
        return roots["rank"], len(roots["many"]), [each["rank"] for each in everyone], nothing

    for size in (1, 3):
        assert run_ranks(size, call) == [(size - 1, 1000 * (size - 1), list(range(size)), None)] * size


def test_parameter_hash_tells_bits_dtypes_and_shapes_apart() -> None:
    zeros = torch.zeros(2, 3)
    assert functions.parameter_hash([zeros]) == functions.parameter_hash([torch.zeros(3, 2).t()])
    different = [zeros, -zeros, zeros.double(), torch.zeros(3, 2), torch.zeros(6)]
    assert len({functions.parameter_hash([tensor]) for tensor in different}) == 5
    assert len(functions.parameter_hash(iter(different))) == 16
