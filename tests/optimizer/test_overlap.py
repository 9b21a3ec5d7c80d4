"""Messages leave while backward still runs."""

import time

import torch

from sparse_ring.recipe import TopK
from tests.helpers import run_ranks
from tests.optimizer.models import model_of, warm_up, wrapped


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


def left_before_backward_ended(session):
    """The first layer's backward waits until the last layer's gradient was exchanged; returns what timestamps say.

    Without overlap it would wait in vain.
    """
    model = model_of()
    optimizer = wrapped(session, model, TopK(density=0.1, minimum_elements=10))
    warm_up(model, optimizer)
    record = next(r for r in optimizer._reducer.records if r.name == "2.weight")
    transport = session.engine.link._transport
    left, isend = [], transport.isend

    def recording(data, destination, tag):
        # Not a control frame without a gradient in it.
        if len(data) > 100:
            left.append(time.perf_counter())
        return isend(data, destination, tag)

    def wait():
        assert record.handle.wait(timeout=30) is not None

    transport.isend = recording
    hidden = model[1](_Wait.apply(model[0](torch.ones(3, 20)), wait))
    model[2](hidden).sum().backward()
    ended = time.perf_counter()
    optimizer.step()
    transport.isend = isend
    return min(left) < ended


def test_gradients_leave_before_backward_has_ended():
    assert run_ranks(2, left_before_backward_ended) == [True, True]
