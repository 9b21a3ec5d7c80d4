"""Train a small CNN on scikit-learn's handwritten digits, on as many ranks as you start.

sparse-ring-run -np 2 python examples/digits.py --recipe gradsa --density 0.01
"""

import argparse
import dataclasses

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn.functional import cross_entropy

import sparse_ring.torch as hvd
from sparse_ring.recipe import RECIPES, recipe_named


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", choices=list(RECIPES), default="gradsa")
    parser.add_argument(
        "--density", type=float, default=0.01, help="fraction of the elements sent, where a recipe has one"
    )
    parser.add_argument("--values", default="float16", help="how their values are coded: float32, float16, int4, …")
    parser.add_argument("--small", default="float32", help="how biases travel: float32, bfloat16, int8")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--steps", type=int, default=0, help="stop after this many steps (0: after the epochs)")
    parser.add_argument("--batch", type=int, default=64, help="images a step, over all ranks")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0, help="weights and order of the images; the split is fixed")
    args = parser.parse_args()
    if not 1 <= args.batch <= 1437:
        parser.error("--batch must be from 1 to 1437, the number of training images")
    return args


def digits() -> tuple[torch.Tensor, ...]:
    """1,437 training and 360 test images of 8 x 8, standardised, and their labels."""
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1)
    split = train_test_split(range(len(images)), test_size=360, random_state=0, stratify=data.target)
    train, test = (torch.tensor(part) for part in split)
    labels = torch.tensor(data.target)
    images = (images - images[train].mean()) / images[train].std()
    return images[train], labels[train], images[test], labels[test]


def network() -> nn.Module:
    """284 thousand parameters, 99.8 % of them in matrices that are sent sparsely."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1024, 256), nn.ReLU(), nn.Linear(256, 10),
    )  # fmt: skip


def main() -> None:
    args = parse()
    hvd.init()
    torch.manual_seed(args.seed)
    images, labels, test_images, test_labels = digits()
    model = network()
    asked = {"density": args.density, "values": args.values, "small": args.small}
    known = {field.name for field in dataclasses.fields(RECIPES[args.recipe])}
    settings = {name: value for name, value in asked.items() if name in known}
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(
        optimizer, model.named_parameters(), compression=recipe_named(args.recipe, **settings)
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

    steps_per_epoch = len(images) // args.batch
    total = args.steps or args.epochs * steps_per_epoch
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total, cycle_momentum=False)
    order = torch.Generator().manual_seed(args.seed)
    for step in range(total):
        if step % steps_per_epoch == 0:
            shuffled = torch.randperm(len(images), generator=order)
        whole = shuffled[step % steps_per_epoch * args.batch :][: args.batch]
        mine = whole[hvd.rank() :: hvd.size()]
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


if __name__ == "__main__":
    main()
