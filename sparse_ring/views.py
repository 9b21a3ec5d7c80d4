"""torch tensors as the flat arrays that operations work on, and back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

ARITHMETIC = dict.fromkeys(
    (
        *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128),
        *(torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool),
    )
)


def dtype_name(dtype: torch.dtype) -> str:
    """Return a dtype's name without the module, as in ``"float32"``."""
    return str(dtype).removeprefix("torch.")


class Work:
    """A tensor's elements in host memory, in C order of its logical shape: the tensor's own memory where that is possible.

    tensor
        Any strides and device; its gradient is not followed.
    in_place
        ``result()`` writes into the tensor and returns it; otherwise the tensor is only read, now.
    name
        For errors.
    dtype
        Of the elements while they are worked on; default: the tensor's. ``result()`` rounds back.

    Raises ValueError for what is no dense tensor.
    """

    def __init__(self, tensor: torch.Tensor, name: str, *, in_place: bool, dtype: torch.dtype | None = None) -> None:
        if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided or tensor.is_quantized:
            what = type(tensor).__name__ if not isinstance(tensor, torch.Tensor) else f"a {tensor.layout} tensor"
            raise ValueError(
                f"Tensor '{name}': {what} is not supported; give a dense torch tensor (tensor.to_dense())."
            )
        self.tensor, self.name, self._in_place = tensor, name, in_place
        host = tensor.detach()
        plain = tensor.is_cpu and tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg())
        if not plain or dtype not in (None, tensor.dtype):
            host = host.resolve_conj().resolve_neg().to("cpu", dtype or tensor.dtype).contiguous()
        self._shares_memory = host.data_ptr() == tensor.data_ptr()
        if not in_place and self._shares_memory:
            host, self._shares_memory = host.clone(), False
        self._host = host

    def array(self) -> NDArray[Any]:
        """Return the elements for arithmetic: bfloat16 as bits in ``uint16``, complex as real and imaginary parts.

        Raises ValueError for a dtype without arithmetic.
        """
        if self.tensor.dtype not in ARITHMETIC:
            known = ", ".join(dtype_name(dtype) for dtype in ARITHMETIC)
            raise ValueError(
                f"Tensor '{self.name}': dtype {dtype_name(self.tensor.dtype)} can't be reduced; use one of {known}."
            )
        host = torch.view_as_real(self._host) if self._host.is_complex() else self._host
        if host.dtype == torch.bfloat16:
            # NumPy has no bfloat16; its bits do.
            bits: NDArray[Any] = host.view(torch.int16).numpy().view(np.uint16)
            return bits
        array: NDArray[Any] = host.numpy()
        return array

    def bytes(self) -> NDArray[np.uint8]:
        """Return the elements as 1-D bytes, whatever their dtype."""
        array: NDArray[np.uint8] = self._host.reshape(-1).view(torch.uint8).numpy()
        return array

    def result(self) -> torch.Tensor:
        """Return the tensor with the elements as they are now (in place), or a new one like it."""
        if self._in_place:
            if not self._shares_memory:
                _copy_back(self.tensor.detach(), self._host)
            return self.tensor
        if self.tensor.device.type == "cpu" and self.tensor.is_contiguous():
            return self._host
        return torch.empty_like(self.tensor, requires_grad=False).copy_(self._host)


def expanded_dimensions(tensor: torch.Tensor) -> list[int]:
    """Return the dimensions along which all elements are one in memory, as ``expand()`` makes them."""
    return [dim for dim, stride in enumerate(tensor.stride()) if stride == 0 and tensor.shape[dim] > 1]


def _copy_back(target: torch.Tensor, values: torch.Tensor) -> None:
    # torch refuses to write an expanded dimension, so write it once.
    for dim in expanded_dimensions(target):
        target, values = target.narrow(dim, 0, 1), values.narrow(dim, 0, 1)
    target.copy_(values)


def row_bytes(tensor: torch.Tensor) -> int:
    """Return the bytes of one row: of all dimensions but the first."""
    return math.prod(tensor.shape[1:]) * tensor.element_size()


def from_bytes(data: NDArray[np.uint8], rows: int, like: torch.Tensor) -> torch.Tensor:
    """Return bytes as a tensor of ``rows`` rows with the dtype, the other dimensions and the device of ``like``."""
    shape = (rows, *like.shape[1:])
    # torch gives an empty array's tensor stride 0 and then cannot view it.
    values = (
        torch.from_numpy(data).view(like.dtype).reshape(shape) if data.size else torch.empty(shape, dtype=like.dtype)
    )
    return values.to(like.device)
