"""The ways people write a step: accumulation, clipping, branches, closures, dtypes."""

import pytest
import torch
from torch import nn

from sparse_ring.optimizer import DistributedOptimizer
from sparse_ring.recipe import Dense, GradSA, TopK
from tests.helpers import run_ranks
from tests.optimizer.models import distance, flat, loss_of, model_of, warm_up, wrapped

RECIPES = [Dense(), TopK(density=0.2, minimum_elements=10), GradSA(density=0.2, minimum_elements=10, warmup_steps=2)]


def test_accumulated_passes_are_summed_and_sent_once():
    def job(session, passes):
        model = model_of()
        optimizer = wrapped(session, model, backward_passes_per_step=passes)
        for step in range(4):
            optimizer.zero_grad()
            halves = [loss_of(model, step, part, 2) for part in range(2)]
            for loss in halves if passes == 2 else [halves[0] + halves[1]]:
                loss.backward()
            optimizer.step()
        return model, session.metrics.dense_bytes

    (twice, bytes_twice) = run_ranks(1, lambda session: job(session, 2))[0]
    (once, bytes_once) = run_ranks(1, lambda session: job(session, 1))[0]
    assert bytes_twice == bytes_once
    assert distance(twice, once) < 1e-6


def test_leftover_passes_are_sent_by_step():
    def job(session):
        model = model_of()
        optimizer = wrapped(session, model, backward_passes_per_step=3)
        loss_of(model, 0, session.rank, session.size).backward()
        optimizer.step()
        return flat(model)

    first, second = run_ranks(2, job)
    assert torch.equal(first, second)
    assert not torch.equal(first, flat(model_of()))


def test_one_backward_too_many_says_what_to_do():
    def job(session):
        model = model_of()
        optimizer = wrapped(session, model)
        warm_up(model, optimizer)
        loss_of(model, 0).backward()
        said = r"Parameter '2\.\w+': backward has reached it 2 times .*backward_passes_per_step is 1.*overlap=False"
        with pytest.raises(RuntimeError, match=said):
            loss_of(model, 0).backward()
        optimizer.synchronize()

    run_ranks(2, job)


def test_passes_that_were_not_announced_are_summed_where_the_first_steps_show_them():
    def job(session, passes):
        model = model_of()
        optimizer = wrapped(session, model)
        for step in range(5):
            optimizer.zero_grad()
            halves = [loss_of(model, step, part, 2) for part in range(2)]
            for loss in halves if passes == 2 else [halves[0] + halves[1]]:
                loss.backward()
            optimizer.step()
        return model

    twice = run_ranks(2, lambda session: job(session, 2))[0]
    once = run_ranks(2, lambda session: job(session, 1))[0]
    assert distance(twice, once) < 1e-6


def test_zero_grad_during_the_exchange_says_what_to_do():
    def job(session):
        model = model_of()
        optimizer = wrapped(session, model)
        warm_up(model, optimizer)
        loss_of(model, 0).backward()
        with pytest.raises(RuntimeError, match=r"Call it before backward.*overlap=False"):
            optimizer.zero_grad()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        return float(model[0].weight.grad.abs().sum())

    assert run_ranks(2, job) == [0.0, 0.0]


def test_clipping_the_shared_gradient():
    def job(session):
        model = model_of()
        optimizer = wrapped(session, model)
        loss_of(model, 0, session.rank, session.size).backward()
        optimizer.synchronize()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        with optimizer.skip_synchronize():
            optimizer.step()
        return float(norm), flat(model)

    (norm, first), (other_norm, second) = run_ranks(2, job)
    assert norm == other_norm > 0.01
    assert torch.equal(first, second)
    assert float((first - flat(model_of())).norm()) == pytest.approx(0.05 * 0.01, rel=1e-3)


def test_synchronize_misuse_is_told():
    def job(session):
        model = model_of()
        optimizer = wrapped(session, model)
        loss_of(model, 0).backward()
        optimizer.synchronize()
        with pytest.warns(UserWarning, match="skip_synchronize"):
            optimizer.step()
        with (
            optimizer.skip_synchronize(),
            pytest.raises(RuntimeError, match=r"synchronize\(\) was not called before"),
        ):
            optimizer.step()

    run_ranks(1, job)


@pytest.mark.parametrize("recipe", RECIPES)
def test_parameters_without_gradient(recipe):
    """Used on rank 0 only: zeros elsewhere. Used nowhere: .grad stays None and the parameter stays."""

    def job(session):
        model = nn.ModuleDict({"all": nn.Linear(8, 8), "some": nn.Linear(8, 8), "none": nn.Linear(8, 8)})
        with torch.no_grad():
            for number, parameter in enumerate(model.parameters()):
                parameter.fill_(0.1 * number)
        before = flat(model["none"])
        optimizer = wrapped(session, model, recipe)
        for _ in range(3):
            optimizer.zero_grad()
            output = model["all"](torch.ones(2, 8))
            if session.rank == 0:
                output = model["some"](output)
            output.sum().backward()
            optimizer.step()
        assert model["none"].weight.grad is None
        assert torch.equal(before, flat(model["none"]))
        assert model["some"].weight.grad is not None
        return flat(model)

    ranks = run_ranks(3, job)
    assert all(torch.equal(rank, ranks[0]) for rank in ranks)


def test_a_parameter_that_is_unfrozen_later_is_shared():
    def job(session):
        model = model_of()
        model[0].requires_grad_(False)
        optimizer = wrapped(session, model)
        for step in range(4):
            if step == 2:
                model[0].requires_grad_(True)
            optimizer.zero_grad()
            loss_of(model, step, session.rank, session.size).backward()
            optimizer.step()
        return flat(model), flat(model[0])

    (first, layer), (second, _) = run_ranks(2, job)
    assert torch.equal(first, second)
    assert not torch.equal(layer, flat(model_of()[0]))


def test_a_closure_sees_the_same_loss_on_all_ranks():
    def job(session):
        model = model_of()
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=5, line_search_fn="strong_wolfe")
        optimizer = DistributedOptimizer(optimizer, model.named_parameters(), session=session)

        def closure():
            optimizer.zero_grad()
            loss = loss_of(model, 0, session.rank, session.size)
            loss.backward()
            return loss

        losses = [float(optimizer.step(closure)) for _ in range(3)]
        return losses, flat(model)

    (losses, first), (other, second) = run_ranks(2, job)
    assert losses == other
    assert losses[-1] < losses[0]
    assert torch.equal(first, second)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64])
def test_every_dtype_and_layout(recipe, dtype):
    """channels_last, transposed, 0-d, empty and complex parameters: the mean gradient, rounded to the dtype."""

    def job(session):
        shapes = [(4, 3, 8, 8), (40, 30), (), (0, 3), (5,)]
        parameters = [nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape in shapes]
        if not dtype.is_complex:
            parameters[0] = nn.Parameter(torch.zeros(shapes[0], dtype=dtype).to(memory_format=torch.channels_last))
        parameters[1] = nn.Parameter(torch.zeros(30, 40, dtype=dtype).t())
        optimizer = DistributedOptimizer(torch.optim.SGD(parameters, lr=1.0), None, recipe, session=session)
        for parameter in parameters:
            numbers = torch.arange(parameter.numel(), dtype=torch.float32).view(parameter.shape).to(dtype)
            (parameter * numbers * (session.rank + 1)).real.sum().backward()
        optimizer.step()
        return [parameter.detach() for parameter in parameters]

    first, second = run_ranks(2, job)
    for one, other in zip(first, second, strict=True):
        assert one.dtype == dtype
        assert torch.equal(one, other)
    if isinstance(recipe, Dense):
        assert first[4].tolist() == [0.0, -1.5, -3.0, -4.5, -6.0]
