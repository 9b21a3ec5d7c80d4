"""The ways people write a step: hooks, schedulers, accumulation, clipping, branches, closures."""

import copy
import time

import pytest
import torch
from torch import nn

from sparse_ring.errors import NotInitializedError
from sparse_ring.ops import Max, Sum
from sparse_ring.optimizer import DistributedOptimizer
from sparse_ring.recipe import Dense, GradSA, TopK
from tests.helpers import run_ranks
from tests.optimizer.models import distance, flat, loss_of, model_of

RECIPES = [Dense(), TopK(density=0.2, minimum_elements=10), GradSA(density=0.2, minimum_elements=10, warmup_steps=2)]


def wrapped(session, model, recipe=None, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    return DistributedOptimizer(optimizer, model.named_parameters(), recipe, session=session, **options)


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


@pytest.mark.parametrize("recipe", RECIPES)
def test_accumulated_passes_are_summed_and_sent_once(recipe):
    def job(session, passes):
        model = model_of()
        optimizer = wrapped(session, model, recipe, backward_passes_per_step=passes)
        for step in range(4):
            optimizer.zero_grad()
            for part in range(passes):
                (loss_of(model, step, part, 2) if passes == 2 else loss_of(model, step, 0, 2) + loss_of(model, step, 1, 2)).backward()
            optimizer.step()
        return model, session.metrics.dense_bytes

    (twice, bytes_twice), (once, bytes_once) = run_ranks(1, lambda s: job(s, 2))[0], run_ranks(1, lambda s: job(s, 1))[0]
    assert bytes_twice == bytes_once
    assert distance(twice, once) < 1e-5 or not isinstance(recipe, Dense)


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
        loss_of(model, 0).backward()
        with pytest.raises(RuntimeError, match=r"Parameter '2\.\w+': backward has reached it 2 times .*backward_passes_per_step is 1"):
            loss_of(model, 0).backward()
        optimizer.synchronize()

    run_ranks(1, job)


def test_zero_grad_during_the_exchange_says_what_to_do():
    def job(session):
        model = model_of()
        optimizer = wrapped(session, model)
        loss_of(model, 0).backward()
        with pytest.raises(RuntimeError, match="Call it before backward"):
            optimizer.zero_grad()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        return float(model[0].weight.grad.abs().sum())

    assert run_ranks(1, job) == [0.0]


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
        optimizer = DistributedOptimizer(optimizer, model.named_parameters(), session=session)
        with pytest.raises(ValueError, match="distributed already"):
            DistributedOptimizer(optimizer, session=session)
        with pytest.raises(NotImplementedError, match="add all groups"):
            optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})

    run_ranks(1, job)


def test_before_init_it_says_so():
    with pytest.raises(NotInitializedError, match="has not been initialized"):
        DistributedOptimizer(torch.optim.SGD(model_of().parameters(), lr=0.1))


def test_sparse_gradients_are_refused_by_name():
    def job(session):
        embedding = nn.Embedding(10, 4, sparse=True)
        optimizer = wrapped(session, embedding)
        with pytest.raises(ValueError, match="Parameter 'weight' has a torch.sparse_coo gradient.*sparse=False"):
            embedding(torch.tensor([1, 2])).sum().backward()
        del optimizer

    run_ranks(1, job)


class _Wait(torch.autograd.Function):
    """The identity; its backward calls a function first."""

    @staticmethod
    def forward(ctx, x, wait):
        ctx.wait = wait
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.wait()
        return gradient, None


def test_gradients_leave_before_backward_has_ended():
    """The first layer's backward waits until the last layer's gradient was exchanged: without overlap it would wait forever."""

    def job(session):
        model = model_of()
        optimizer = wrapped(session, model, TopK(density=0.1, minimum_elements=10))
        record = next(r for r in optimizer._reducer.records if r.name == "2.weight")
        left = []
        isend = session.engine.link._transport.isend

        def recording(*arguments):
            left.append(time.perf_counter())
            return isend(*arguments)

        session.engine.link._transport.isend = recording

        def wait():
            assert record.handle.wait(timeout=30) is not None

        hidden = model[1](_Wait.apply(model[0](torch.ones(3, 20)), wait))
        model[2](hidden).sum().backward()
        ended = time.perf_counter()
        optimizer.step()
        return min(left) < ended

    assert run_ranks(2, job) == [True, True]


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
