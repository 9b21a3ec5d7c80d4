"""Training on real ranks: started by tests/optimizer/test_ranks.py under mpiexec."""

import torch

import sparse_ring.torch as hvd
from sparse_ring.session import current
from tests.optimizer.models import distance, flat
from tests.optimizer.test_mathematics import alone, together
from tests.optimizer.test_overlap import left_before_backward_ended

# One of each way, and the signs, which are counted.
RECIPES = [
    hvd.Dense(), hvd.BF16(), hvd.TopK(density=0.1), hvd.GradSA(density=0.05, warmup_steps=4), hvd.SignSGD(),
    hvd.TernGrad(minimum_elements=1024), hvd.Int8(), hvd.CLTK(density=0.05), hvd.RandomK(density=0.05), hvd.PowerSGD(rank=2),
]  # fmt: skip


def main() -> None:
    hvd.init()
    for optimizer in ("sgd", "adamw"):
        for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
            model = together(current(), optimizer, hvd.Dense(), dtype)
            far = distance(model, alone(optimizer, dtype))
            assert far <= tolerance, (optimizer, dtype, far)
    for recipe in RECIPES:
        model = together(current(), "sgd", recipe, steps=12)
        hashes = hvd.allgather_object(hvd.parameter_hash(model.parameters()))
        assert len(set(hashes)) == 1, (recipe, hashes)
        assert not torch.equal(flat(model), flat(together(current(), "sgd", recipe, steps=0)))
    assert hvd.size() == 1 or left_before_backward_ended(current())
    print("training: ok")
    hvd.shutdown()


if __name__ == "__main__":
    main()
