"""Messages leave while backward still runs."""

import time

import torch

from sparse_ring.recipe import TopK
from tests.helpers import run_ranks
from tests.optimizer.models import model_of, wrapped


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
