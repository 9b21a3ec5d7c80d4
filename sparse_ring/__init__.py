"""Data-parallel PyTorch training for slow networks: sparse, coded gradients, used like Horovod.

``import sparse_ring.torch as hvd`` is the Horovod-shaped namespace; this package holds the same things by their own
names. They are loaded when they are first used: importing ``sparse_ring`` starts neither MPI nor a thread and does not
load torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparse_ring.config import Config as Config
    from sparse_ring.errors import ConfigError as ConfigError
    from sparse_ring.errors import MessageError as MessageError
    from sparse_ring.errors import MismatchError as MismatchError
    from sparse_ring.errors import NotInitializedError as NotInitializedError
    from sparse_ring.errors import RankLostError as RankLostError
    from sparse_ring.errors import SparseRingError as SparseRingError
    from sparse_ring.errors import StallError as StallError
    from sparse_ring.observe.metrics import Metrics as Metrics
    from sparse_ring.observe.progress import Progress as Progress
    from sparse_ring.optimizer import DistributedOptimizer as DistributedOptimizer
    from sparse_ring.plan import Plan as Plan
    from sparse_ring.recipe import *  # noqa: F403
    from sparse_ring.session import Session as Session
    from sparse_ring.session import init as init
    from sparse_ring.session import shutdown as shutdown
    from sparse_ring.sparse import SparseGradient as SparseGradient

_HOMES = {
    "config": ("Config",),
    "errors": (
        "ConfigError",
        "MessageError",
        "MismatchError",
        "NotInitializedError",
        "RankLostError",
        "SparseRingError",
        "StallError",
    ),
    "observe.metrics": ("Metrics",),
    "observe.progress": ("Progress",),
    "optimizer": ("DistributedOptimizer",),
    "plan": ("Plan",),
    "recipe": ("Recipe",),
    "session": ("Session", "init", "shutdown"),
    "sparse": ("SparseGradient",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [*_HOME_OF, "__version__"]  # noqa: F405


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("sparse-ring")
    elif name in _HOME_OF:
        value = getattr(import_module(f"sparse_ring.{_HOME_OF[name]}"), name)
    else:
        # Recipes are known to their own table only.
        found = {recipe.__name__: recipe for recipe in import_module("sparse_ring.recipe").RECIPES.values()}
        if name not in found:
            known = ", ".join(sorted({*_HOME_OF, *found}))
            raise AttributeError(f"module 'sparse_ring' has no attribute {name!r}; it has {known}.")
        value = found[name]
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
