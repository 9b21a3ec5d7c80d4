"""One rank: trains run after run in one job, and rank 0 adds a line of JSON for each.

python -m benchmarks.convergence.worker TASK FILE ARM;LR;SEED …
"""

from __future__ import annotations

import json
import math
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import sparse_ring.torch as hvd
from benchmarks.convergence.arms import recipe_of
from benchmarks.convergence.tasks import MOMENTUM, TASKS, Task
from sparse_ring.observe.metrics import Metrics
from sparse_ring.session import current


def train(task_name: str, run: str) -> dict[str, Any]:
    """Train one run from scratch; returns its curve.

    ``bytes`` are those of this rank's messages up to each evaluation, ``seconds`` those of the steps alone.
    """
    arm, rate, seed = run.split(";")
    task, recipe = TASKS[task_name](int(seed)), recipe_of(arm, TASKS[task_name])
    torch.manual_seed(int(seed))
    model = task.network()
    settings = {"momentum": MOMENTUM} if task.optimizer is torch.optim.SGD else {"weight_decay": 0.01}
    plain = task.optimizer(model.parameters(), lr=float(rate), **settings)
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters(), compression=recipe)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, float(rate), task.steps, cycle_momentum=False)
    metrics = current().metrics
    first = warm = replace(metrics)
    curve: dict[str, list[float]] = {"steps": [], "metric": [], "bytes": [], "seconds": []}
    seconds = 0.0
    for step in range(task.steps):
        if step == recipe.warmup:
            warm = replace(metrics)
        began = time.perf_counter()
        one_step(task, model, optimizer, step)
        seconds += time.perf_counter() - began
        schedule.step()
        if (step + 1) % task.every == 0:
            curve["steps"].append(step + 1)
            curve["metric"].append(task.evaluate(model))
            curve["bytes"].append(metrics.message_bytes - first.message_bytes)
            curve["seconds"].append(round(seconds, 3))
    # Ranks whose replicas differed would have trained something else than what they claim.
    equal = len(set(hvd.allgather_object(hvd.parameter_hash(model.parameters())))) == 1
    return (
        {"arm": arm, "lr": float(rate), "seed": int(seed), "recipe": repr(recipe), "replicas_equal": equal}
        | curve
        | ratios(first, warm, metrics)
    )


def one_step(task: Task, model: torch.nn.Module, optimizer: Any, step: int) -> None:
    """Take a step; a loss that is not finite any more stays so, and the run goes on to its end."""
    optimizer.zero_grad()
    loss = task.loss(model, step, hvd.rank(), hvd.size())
    loss.backward()
    optimizer.step()


def ratios(first: Metrics, warm: Metrics, last: Metrics) -> dict[str, Any]:
    """Return message ratios of the whole run and after the warm-up, and what of its bytes is neither indices nor values."""
    whole = (last.dense_bytes - first.dense_bytes) / max(1, last.message_bytes - first.message_bytes)
    made = last.message_bytes - warm.message_bytes
    coded = last.index_bytes + last.value_bytes - warm.index_bytes - warm.value_bytes
    return {
        "ratio": whole,
        "ratio_after_warmup": (last.dense_bytes - warm.dense_bytes) / max(1, made),
        "other_share": 1.0 - coded / made if made and coded else math.nan,
    }


def main() -> None:
    task, path, *runs = sys.argv[1:]
    hvd.init()
    torch.set_num_threads(1)
    for run in runs:
        result = train(task, run)
        if hvd.rank() == 0:
            with Path(path).open("a") as file:
                file.write(json.dumps(result) + "\n")
    hvd.shutdown()


if __name__ == "__main__":
    main()
