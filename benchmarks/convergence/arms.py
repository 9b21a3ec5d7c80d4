"""What is compared: recipes by name and settings, and on which tasks with how many seeds."""

from __future__ import annotations

from typing import Any

from benchmarks.convergence.tasks import TASKS, Task
from sparse_ring.recipe import RECIPES, Recipe

# By arm: the recipe's name, then its settings. Densities warm up as the task says unless ``warmup_steps`` is given.
ARMS: dict[str, tuple[str, dict[str, Any]]] = {
    "dense": ("dense", {}),
    "bf16": ("bf16", {}),
    "fp16": ("fp16", {}),
    "topk 1 %": ("topk", {"density": 0.01}),
    "topk 0.1 %": ("topk", {"density": 0.001}),
    "chunk topk 1 %": ("chunktopk", {"density": 0.01}),
    "threshold": ("threshold", {"threshold": 0.02}),
    "random-k 1 %": ("randomk", {"density": 0.01}),
    "clt-k 1 %": ("cltk", {"density": 0.01}),
    "dgc 0.1 %": ("dgc", {"density": 0.001}),
    "dgc 1 %": ("dgc", {"density": 0.01}),
    "powersgd rank 1": ("powersgd", {"rank": 1}),
    "powersgd rank 4": ("powersgd", {"rank": 4}),
    "terngrad": ("terngrad", {}),
    "qsgd 4 bits": ("qsgd", {"bits": 4}),
    "qsgd 8 bits": ("qsgd", {"bits": 8}),
    "8 bits": ("int8", {}),
    "8 bits, tree, no residual": ("int8", {"levels": "tree", "residual": False}),
    "4 bits": ("fourbit", {}),
    "2 bits": ("twobit", {}),
    "1 bit": ("onebit", {}),
    "adaptive bits": ("adaptivebits", {}),
    "signsgd": ("signsgd", {}),
    # GradSA and its parts.
    "gradsa 1 %": ("gradsa", {"density": 0.01}),
    "gradsa 0.1 %": ("gradsa", {"density": 0.001}),
    "gradsa 0.03 %": ("gradsa", {"density": 0.0003}),
    "gradsa 0.1 %, float32": ("gradsa", {"density": 0.001, "values": "float32"}),
    "gradsa 0.1 %, int4": ("gradsa", {"density": 0.001, "values": "int4", "small": "int8"}),
    "gradsa 0.1 %, int2": ("gradsa", {"density": 0.001, "values": "int2", "small": "int8"}),
    "gradsa 0.1 %, sign": ("gradsa", {"density": 0.001, "values": "sign", "small": "int8"}),
    "gradsa 0.03 %, sign": ("gradsa", {"density": 0.0003, "values": "sign", "small": "int8"}),
    "gradsa 0.1 %, no warm-up": ("gradsa", {"density": 0.001, "warmup_steps": 0}),
    "gradsa 0.1 %, whole model": ("gradsa", {"density": 0.001, "scope": "model"}),
    "gradsa 0.1 %, global momentum": ("gradsa", {"density": 0.001, "momentum": "global"}),
    "gradsa 0.1 %, taylor": ("gradsa", {"density": 0.001, "compensation": "taylor"}),
    "gradsa 0.1 %, taylor adaptive": ("gradsa", {"density": 0.001, "compensation": "taylor_adaptive"}),
    "gradsa 0.1 %, history": ("gradsa", {"density": 0.001, "compensation": "history"}),
    "gradsa 0.1 %, taylor adaptive + history": (
        "gradsa",
        {"density": 0.001, "compensation": "taylor_adaptive+history"},
    ),
}
# The step of every element is the learning rate itself.
RATE_FACTORS = {"signsgd": 0.01}

EVERY_RECIPE = [name for name in ARMS if not name.startswith("gradsa 0.")] + ["gradsa 0.1 %"]
ABLATION = [name for name in ARMS if name.startswith("gradsa")]
RIVALS = ["dense", "bf16", "topk 0.1 %", "dgc 0.1 %", "powersgd rank 4", "terngrad", "8 bits"]

# The default GradSA, which is held against dense with many seeds where a run is short.
DEFAULT = "gradsa 1 %"
PAIRED_SEEDS = 30
# By task: arms, seeds.
WANTED: dict[str, tuple[list[str], int]] = {
    "digits": (EVERY_RECIPE, 5),
    "cancer": (EVERY_RECIPE, 5),
    "mlp": ([*RIVALS, *ABLATION], 3),
    "gpt": (["dense", "dgc 1 %", "gradsa 1 %"], 3),
}
QUICK_ARMS = ["dense", "gradsa 1 %", "gradsa 0.1 %", "dgc 1 %", "8 bits", "terngrad", "powersgd rank 4"]
TUNING_SEED = 1000


def recipe_of(arm: str, task: type[Task]) -> Recipe:
    """Return the recipe of an arm on a task."""
    name, settings = ARMS[arm]
    # Recipes that warm up by default do so as long as the task says.
    warmed = {"warmup_steps": task.warmup_steps} if RECIPES[name]().warmup else {}
    return RECIPES[name](**{**warmed, **settings})


def rates_of(arm: str, task: str) -> list[float]:
    """Return the learning rates that tuning tries."""
    factor = RATE_FACTORS.get(arm, 1.0)
    return [rate * factor for rate in TASKS[task].rates]
