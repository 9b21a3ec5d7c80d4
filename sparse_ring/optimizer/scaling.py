"""GradScaler: unscale behind one flag that all ranks share, so that a skipped step is skipped everywhere.

torch's scaler hands scale and flag to optimizers that say ``_step_supports_amp_scaling``. Each rank's scaler goes on by
its own flag, so scales may differ between ranks; gradients are unscaled before they are shared.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from sparse_ring import ops
from sparse_ring.session import Session


def unscale(optimizer: Any, parameters: Iterable[torch.Tensor], name: str, session: Session) -> bool:
    """Undo the loss scale on all gradients; returns False, touching nothing, where any rank's are not finite.

    ``optimizer`` has ``grad_scale`` (None: unscaled already) and ``found_inf`` from ``GradScaler.step``; both are None
    afterwards, so that a fused optimizer does not apply them again.
    """
    scale, found = optimizer.grad_scale, optimizer.found_inf
    optimizer.grad_scale = optimizer.found_inf = None
    flag = found.detach().to("cpu", torch.float32)
    if float(ops.allreduce(flag, name=name, op=ops.Max, session=session)) > 0:
        return False
    if scale is not None:
        factor = 1.0 / float(scale)
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(factor)
    return True
