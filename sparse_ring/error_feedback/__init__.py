"""What is not sent now is kept and sent later: the memory of one parameter on one rank."""

from sparse_ring.error_feedback.base import ErrorFeedback
from sparse_ring.error_feedback.momentum import MomentumResidual
from sparse_ring.error_feedback.residual import Residual

__all__ = ["ErrorFeedback", "MomentumResidual", "Residual"]
