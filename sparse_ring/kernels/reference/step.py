"""A sparse step of plain gradient descent in NumPy: the twin of ``CudaKernels.sparse_step``."""

from __future__ import annotations

import numpy as np

from sparse_ring.kernels.base import Floats, Indices


@np.errstate(all="ignore")
def sparse_step(parameter: Floats, gradient: Floats, indices: Indices, rate: float) -> None:
    """``p[i] -= rate * g[i]`` at ``indices``: ``rate`` rounded to float32, then the product, then the difference.

    ``parameter`` and ``gradient`` are ``float32[numel]``, ``indices`` ``uint32[count]``, distinct and below ``numel``.
    """
    parameter[indices] = parameter[indices] - np.float32(rate) * gradient[indices]
