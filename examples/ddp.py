"""Handwritten digits with DistributedDataParallel: one more line, and its gradients travel compressed.

torchrun --nproc-per-node 2 examples/ddp.py --recipe gradsa --density 0.01
"""

import argparse
import dataclasses

import torch
import torch.distributed as dist
from digits import digits, network
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import sparse_ring.ddp
import sparse_ring.torch as hvd
from sparse_ring.recipe import RECIPES, recipe_named


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", choices=list(RECIPES), default="gradsa")
    parser.add_argument("--density", type=float, default=0.01, help="fraction of the elements sent (sparse recipes)")
    parser.add_argument("--steps", type=int, default=660)
    parser.add_argument("--batch", type=int, default=64, help="images a step, over all ranks")
    return parser.parse_args()


def main() -> None:
    args = parse()
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    images, labels, test_images, test_labels = digits()
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    has_density = "density" in {field.name for field in dataclasses.fields(RECIPES[args.recipe])}
    recipe = recipe_named(args.recipe, **({"density": args.density} if has_density else {}))
    sparse_ring.ddp.register(model, optimizer, compression=recipe)

    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, args.steps, cycle_momentum=False)
    for _ in range(args.steps):
        mine = torch.randint(len(images), (args.batch,))[rank::size]
        optimizer.zero_grad()
        loss = cross_entropy(model(images[mine]), labels[mine])
        loss.backward()
        optimizer.step()
        hvd.report(loss=loss)
        schedule.step()

    with torch.no_grad():
        correct = (model(test_images).argmax(1) == test_labels).float().mean().item()
    print(f"test accuracy {100 * correct:.2f} %, parameter hash {hvd.parameter_hash(model.parameters())}")
    hvd.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
