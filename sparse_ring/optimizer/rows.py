"""torch's sparse gradients as rows, and back."""

from __future__ import annotations

import numpy as np
import torch

from sparse_ring.exchange.rows import Rows

_WORK_DTYPES = {torch.float32, torch.float64}


def rows_of(parameter: torch.Tensor, gradient: torch.Tensor | None, name: str) -> Rows:
    """Return the rows of a COO gradient with one sparse dimension, or none of them where there is no gradient.

    Half precision is widened to float32. Raises ValueError naming the parameter for another layout or dtype.
    """
    dtype = parameter.dtype if parameter.dtype in _WORK_DTYPES else torch.float32
    if gradient is None:
        empty = torch.zeros((0, *parameter.shape[1:]), dtype=dtype)
        return Rows(np.zeros(0, dtype=np.int64), empty.numpy())
    gradient = gradient.detach()
    if gradient.sparse_dim() != 1 or gradient.is_complex():
        raise ValueError(
            f"Parameter '{name}' has a sparse gradient with {gradient.sparse_dim()} sparse dimensions and dtype "
            f"{gradient.dtype}; only rows of real numbers are supported: use a dense gradient (sparse=False)."
        )
    numbers = gradient._indices()[0].to("cpu", torch.int64).numpy()
    return Rows(numbers, gradient._values().to("cpu", dtype).contiguous().numpy())


def sparse_gradient(parameter: torch.Tensor, rows: Rows) -> torch.Tensor:
    """Return the rows as a coalesced COO gradient like the parameter."""
    numbers = torch.from_numpy(rows.numbers).unsqueeze(0).to(parameter.device)
    values = torch.from_numpy(rows.values).to(parameter.device, parameter.dtype)
    return torch.sparse_coo_tensor(numbers, values, tuple(parameter.shape), is_coalesced=True, check_invariants=False)
