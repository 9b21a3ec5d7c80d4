"""What wrapping an optimizer keeps, and what it refuses."""

import copy

import pytest
import torch
from torch import nn

from sparse_ring.errors import NotInitializedError
from sparse_ring.ops import Max, Sum
from sparse_ring.optimizer import DistributedOptimizer
from sparse_ring.recipe import GradSA
from tests.helpers import run_ranks
from tests.optimizer.models import flat, loss_of, model_of, wrapped


def test_the_object_stays_what_it_was():
    def job(session):
        model = model_of()
        plain = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        loss_of(model, 0).backward()
        plain.step()
        buffer = plain.state[model[0].weight]["momentum_buffer"]
        calls = []
        plain.register_step_pre_hook(lambda *_: calls.append("pre"))
        plain.register_step_post_hook(lambda *_: calls.append("post"))
        optimizer = DistributedOptimizer(plain, model.named_parameters(), session=session)
        assert optimizer is plain
        assert isinstance(optimizer, torch.optim.SGD)
        assert type(optimizer).__name__ == "SGD"
        assert optimizer.state[model[0].weight]["momentum_buffer"] is buffer
        optimizer.step()
        return calls

    assert run_ranks(1, job) == [["pre", "post"]]


@pytest.mark.parametrize("made", ["before", "after"])
def test_schedulers_see_every_step(made):
    """torch warns (an error here) where a scheduler steps before its optimizer did."""

    def job(session):
        model = model_of()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        if made == "before":
            schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        optimizer = DistributedOptimizer(optimizer, model.named_parameters(), session=session)
        if made == "after":
            schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        weight = model[0].weight.detach().clone()
        for step in range(2):
            optimizer.zero_grad()
            loss_of(model, step, session.rank, session.size).backward()
            optimizer.step()
            schedule.step()
        assert not torch.equal(weight, model[0].weight)
        return optimizer.param_groups[0]["lr"], flat(model)

    (rate, first), (_, second) = run_ranks(2, job)
    assert rate == 0.25
    assert torch.equal(first, second)


def test_sum_and_names_that_were_not_given():
    def job(session):
        parameter = nn.Parameter(torch.zeros(3))
        optimizer = DistributedOptimizer(torch.optim.SGD([parameter], lr=1.0), op=Sum, session=session)
        (parameter * (session.rank + 1)).sum().backward()
        optimizer.step()
        return parameter.tolist(), optimizer._reducer.records[0].name

    assert run_ranks(2, job) == [([-3.0] * 3, "parameter.0.0")] * 2


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"named_parameters": [("a", None), ("a", None)]}, "duplicate names: a"),
        ({"named_parameters": []}, "4 optimizer parameters are not in named_parameters"),
        ({"named_parameters": ["a"]}, r"must be \(name, tensor\) tuples"),
        ({"backward_passes_per_step": 0}, "backward_passes_per_step is 0, but must be at least 1"),
        ({"op": Max}, "must be Average or Sum"),
        ({"compression": "zip"}, "recipe is 'zip', but must be one of dense"),
    ],
)
def test_wrong_arguments_are_refused(options, text):
    def job(session):
        optimizer = torch.optim.SGD(model_of().parameters(), lr=0.1)
        with pytest.raises(ValueError, match=text):
            DistributedOptimizer(optimizer, session=session, **options)

    run_ranks(1, job)


def test_dampening_and_wrapping_twice_are_refused():
    def job(session):
        model = model_of()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, dampening=0.5)
        with pytest.raises(ValueError, match=r"Parameter '0\.weight'.*dampening=0\.5.*Set dampening=0, or use TopK"):
            DistributedOptimizer(optimizer, model.named_parameters(), GradSA(), session=session)
        assert type(optimizer) is torch.optim.SGD
        assert not hasattr(optimizer, "_reducer")
        optimizer = DistributedOptimizer(optimizer, model.named_parameters(), session=session)
        with pytest.raises(ValueError, match="distributed already"):
            DistributedOptimizer(optimizer, session=session)
        with pytest.raises(ValueError, match=r"1 optimizer parameters are not in named_parameters .*parameter\.1\.0"):
            optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
        assert len(optimizer.param_groups) == 1

    run_ranks(1, job)


def test_before_init_it_says_so():
    with pytest.raises(NotInitializedError, match="has not been initialized"):
        DistributedOptimizer(torch.optim.SGD(model_of().parameters(), lr=0.1))


def test_a_deep_copy_of_the_model_is_no_part_of_the_exchange():
    def job(session):
        model = model_of()
        optimizer = wrapped(session, model)
        twin = copy.deepcopy(model)
        loss_of(twin, 0).backward()
        assert not optimizer._reducer.in_flight()
        loss_of(model, 0).backward()
        optimizer.step()
        return torch.equal(flat(twin), flat(model_of()))

    assert run_ranks(1, job) == [True]
