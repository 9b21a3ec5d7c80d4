"""A gradient as the flat array that the exchange works on, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray


class Staging:
    """The array behind one parameter's gradient for one step.

    Contiguous gradients in host memory are used in place; others (other strides, half precision that messages widen,
    other devices) are copied, and the shared gradient is copied back.

    dtype
        Name of the array's dtype; ``"bfloat16"`` is held as ``uint16``.
    """

    def __init__(self, parameter: torch.Tensor, widen: bool) -> None:
        self._parameter = parameter
        self._work_dtype = torch.float32 if widen else parameter.dtype
        if self._work_dtype.is_complex:
            self._work_dtype = torch.view_as_real(torch.empty(0, dtype=self._work_dtype)).dtype
        self.dtype = str(self._work_dtype).removeprefix("torch.")

    def load(self, gradient: torch.Tensor) -> NDArray[Any]:
        """Return the gradient in C order as a flat array, in place where that is possible."""
        gradient = gradient.detach()
        if gradient.is_complex():
            gradient = torch.view_as_real(gradient.resolve_conj())
        flat = gradient.to("cpu", self._work_dtype).contiguous().reshape(-1)
        return _as_numpy(flat)

    def empty(self) -> NDArray[Any]:
        """Return zeros, for a parameter without gradient on this rank."""
        factor = 2 if self._parameter.is_complex() else 1
        return _as_numpy(torch.zeros(factor * self._parameter.numel(), dtype=self._work_dtype))

    def store(self, array: NDArray[Any]) -> None:
        """Put the shared gradient into ``parameter.grad``, which is created where it was None."""
        parameter = self._parameter
        flat = torch.from_numpy(array)
        if self._work_dtype == torch.bfloat16:
            flat = flat.view(torch.bfloat16)
        if parameter.grad is None or 0 in parameter.grad.stride():
            # A gradient that was expanded (stride 0) has no memory of its own to write to.
            parameter.grad = torch.empty_like(parameter)
        target = parameter.grad.detach()
        if target.is_complex():
            target = torch.view_as_real(target)
        if target.data_ptr() != flat.data_ptr() or target.dtype != flat.dtype:
            target.copy_(flat.view(target.shape))


def _as_numpy(flat: torch.Tensor) -> NDArray[Any]:
    # NumPy has no bfloat16; its bits do.
    array: NDArray[Any] = (
        flat.view(torch.int16).numpy().view(np.uint16) if flat.dtype == torch.bfloat16 else flat.numpy()
    )
    return array
