"""What is not sent now is kept and sent later: the memory of one parameter on one rank."""

from sparse_ring.error_feedback.base import ErrorFeedback
from sparse_ring.error_feedback.compensation import Applied, Compensation
from sparse_ring.error_feedback.global_momentum import GlobalMomentum
from sparse_ring.error_feedback.history import History
from sparse_ring.error_feedback.memoryless import Memoryless
from sparse_ring.error_feedback.momentum import MomentumResidual
from sparse_ring.error_feedback.residual import Residual
from sparse_ring.error_feedback.taylor import AdaptiveTaylor, Taylor
from sparse_ring.error_feedback.velocity import Velocity

__all__ = [
    "AdaptiveTaylor",
    "Applied",
    "Compensation",
    "ErrorFeedback",
    "GlobalMomentum",
    "History",
    "Memoryless",
    "MomentumResidual",
    "Residual",
    "Taylor",
    "Velocity",
]
