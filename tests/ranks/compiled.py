"""torch.compile on real ranks: started by tests/optimizer/test_ranks.py under mpiexec.

Compiled autograd belongs to the process's main thread, so ranks as threads can't show this.
"""

import torch
import torch._dynamo.compiled_autograd

import sparse_ring.torch as hvd
from sparse_ring.session import current
from tests.optimizer.models import flat, loss_of, model_of, wrapped


def train(compiled: bool) -> torch.Tensor:
    model = model_of()
    called = torch.compile(model, backend="aot_eager") if compiled else model
    # As a user has it: the compiled model's parameters have names of its own.
    optimizer = wrapped(current(), called, hvd.TopK(density=0.2, minimum_elements=10))
    for step in range(4):
        optimizer.zero_grad()
        loss_of(called, step, hvd.rank(), hvd.size()).backward()
        # Gradients leave during a compiled backward, too.
        assert optimizer._reducer.in_flight() == (step >= 2)
        optimizer.step()
    assert len(set(hvd.allgather_object(hvd.parameter_hash(model.parameters())))) == 1
    return flat(model)


def refused() -> str:
    model = torch.nn.Linear(4, 4)
    wrapped(current(), model)
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
        try:
            model(torch.ones(2, 4)).sum().backward()
        except RuntimeError as error:
            return str(error)
    return ""


def main() -> None:
    hvd.init()
    said = refused()
    assert said.startswith("Compiled autograd runs gradient hooks inside a graph"), said
    compiled, eager = train(True), train(False)
    assert float((compiled - eager).norm() / eager.norm()) < 1e-5
    print("compiled: ok")
    hvd.shutdown()


if __name__ == "__main__":
    main()
