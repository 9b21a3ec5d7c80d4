"""GradSA: layer-wise sparse gradients with momentum correction, layer-wise selection and density warm-up.

The paper (GPC 2020) states layer-level sparsification, staleness compensation and an efficient encoding of the sparse
accumulated gradients, and no formulas; what runs here is our reconstruction (``docs/algorithms.md``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sparse_ring.error_feedback import (
    AdaptiveTaylor,
    Compensation,
    ErrorFeedback,
    GlobalMomentum,
    History,
    MomentumResidual,
    Residual,
    Taylor,
)
from sparse_ring.errors import ConfigError
from sparse_ring.kernels.base import Kernels
from sparse_ring.recipe.warmed import WarmedRecipe
from sparse_ring.select import ExactTopK, Selector

COMPENSATIONS = ("none", "taylor", "taylor_adaptive", "history", "taylor+history", "taylor_adaptive+history")
MOMENTA = ("local", "global")


@dataclass(frozen=True, kw_only=True)
class GradSA(WarmedRecipe):
    """u = m·u + g; r = r + u; send the k largest of r, whose border is the parameter's threshold; then r -= decoded, u = 0 there.

    compensation
        How what waits is made up for being stale, after each step: ``"none"`` (default), ``"taylor"``, ``"taylor_adaptive"``,
        ``"history"``, or a Taylor form ``+history``. Formulas: :class:`~sparse_ring.error_feedback.Taylor`,
        :class:`~sparse_ring.error_feedback.AdaptiveTaylor`, :class:`~sparse_ring.error_feedback.History`. [ours]
    taylor_strength, adaptive_strength
        λ of the constant form, 0 or more, and λ0 of the adaptive one; defaults 0.04 (as in MXNet's
        DCASGD) and 2.
    history_strength
        β, at least 0 and below 0.5; default 0.1.
    momentum
        ``"local"`` (default): each rank keeps a velocity u. ``"global"``: none does; m times the last aggregate goes into r instead
        (:class:`~sparse_ring.error_feedback.GlobalMomentum`), which halves the state. Not for Nesterov's momentum, and a plain
        checkpoint has none of it. [ours]
    """

    compensation: str = "none"
    taylor_strength: float = 0.04
    adaptive_strength: float = 2.0
    history_strength: float = 0.1
    momentum: str = "local"
    takes_over_momentum: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.compensation not in COMPENSATIONS:
            raise ConfigError("compensation", self.compensation, f"one of {', '.join(COMPENSATIONS)}")
        if self.momentum not in MOMENTA:
            raise ConfigError("momentum", self.momentum, f"one of {', '.join(MOMENTA)}")
        for name in ("taylor_strength", "adaptive_strength"):
            if not 0.0 <= getattr(self, name) < float("inf"):
                raise ConfigError(name, getattr(self, name), "0 or more")
        if not 0.0 <= self.history_strength < 0.5:
            raise ConfigError("history_strength", self.history_strength, "at least 0 and below 0.5")

    @property
    def exempt(self) -> str:
        """See :attr:`Recipe.exempt`."""
        return "" if self.compensation == "none" else "compensation changes what waits"

    @property
    def takes_nesterov(self) -> bool:
        """See :attr:`Recipe.takes_nesterov`."""
        return self.momentum == "local"

    def error_feedback(self, numel: int, kernels: Kernels) -> ErrorFeedback:
        """Return a residual with what compensates, and a velocity where momentum is local."""
        compensations = self._compensations(kernels)
        if self.momentum == "local":
            return MomentumResidual(numel, kernels, compensations)
        return Residual(numel, kernels, (*compensations, GlobalMomentum(kernels)))

    def _compensations(self, kernels: Kernels) -> tuple[Compensation, ...]:
        makes: dict[str, Compensation] = {
            "taylor": Taylor(self.taylor_strength),
            "taylor_adaptive": AdaptiveTaylor(self.adaptive_strength),
            "history": History(self.history_strength, kernels),
        }
        return tuple(makes[name] for name in self.compensation.split("+") if name != "none")

    def selector(self) -> Selector:
        """Return an exact selection."""
        return ExactTopK()
