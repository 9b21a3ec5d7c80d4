"""Arrays on the device and back: what is copied, and where kernels are launched.

An argument that lies on the device already (``__cuda_array_interface__``, as torch's CUDA tensors have it) is used where it is. A
host array is copied over before the kernels, and back after them where it is an output. Temporary arrays stay on the device.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda
from numpy.typing import NDArray

from sparse_ring.kernels.cuda.warp import ITEMS, MOST_BLOCKS, THREADS, TILE, configured


def empty(shape: int | tuple[int, int], dtype: Any) -> Any:
    """Return a new array on the device, contents undefined."""
    return cuda.device_array(shape, dtype)


def _is_on_device(array: Any) -> bool:
    return getattr(array, "__cuda_ndarray__", False) or hasattr(array, "__cuda_array_interface__")


def _resident(name: str, array: Any, dtype: Any, writable: bool) -> Any:
    """The device array itself; raises ValueError where kernels could not use it."""
    if not getattr(array, "__cuda_ndarray__", False):
        array = cuda.as_cuda_array(array)
    _check(name, array.dtype == dtype and len(array.shape) == 1 and array.is_c_contiguous(), dtype, writable)
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is not None and (interface["data"][0] or 0) % np.dtype(dtype).itemsize:
        raise ValueError(f"{name} must lie at an address that is a multiple of its elements' size on the device.")
    return array


def _check(name: str, fits: bool, dtype: Any, writable: bool) -> None:
    if not fits:
        kind = "writable 1-D" if writable else "1-D"
        raise ValueError(f"{name} must be a {kind} contiguous array of {np.dtype(dtype)} in native byte order.")


def _host(name: str, array: Any, dtype: Any, writable: bool) -> NDArray[Any]:
    host = np.asarray(array)
    fits = host.dtype == dtype and host.ndim == 1 and host.flags.c_contiguous
    _check(name, fits and (host.flags.writeable or not writable), dtype, writable)
    return host


def on_device(name: str, array: Any, dtype: Any, *, writable: bool = False) -> Any:
    """Return the array on the device: itself, or a copy of a host array. ValueError names it where its type is another.

    ``writable`` is for what kernels change: ``bring_back`` it then.
    """
    if _is_on_device(array):
        return _resident(name, array, dtype, writable)
    host = _host(name, array, dtype, writable)
    copied = empty(len(host), dtype)
    if len(host):
        # Messages may lie at any address, and be read-only: the driver gets a copy of these.
        copied.copy_to_device(host if host.flags.aligned and host.flags.writeable else np.array(host))
    return copied


def room_for(name: str, array: Any, dtype: Any) -> Any:
    """Return where to write an output: the array itself on the device, or a new one for ``bring_back``."""
    if _is_on_device(array):
        return _resident(name, array, dtype, True)
    return empty(len(_host(name, array, dtype, True)), dtype)


def bring_back(source: Any, target: Any, count: int | None = None) -> None:
    """Copy the first ``count`` elements, all by default, to a host array; nothing to do where it lies on the device."""
    count = len(target) if count is None else count
    if count and not _is_on_device(target):
        np.asarray(target)[:count] = source[:count].copy_to_host()


def give(name: str, source: Any, target: Any) -> None:
    """Copy all of a device array to an output, wherever that lies."""
    if not _is_on_device(target):
        _host(name, target, source.dtype, True)
        bring_back(source, target)
    elif len(target):
        _resident(name, target, source.dtype, True).copy_to_device(source)


def on_host(array: Any) -> NDArray[Any]:
    """Return the array's elements on the host: itself, or a copy."""
    if not _is_on_device(array):
        return np.asarray(array)
    array = array if getattr(array, "__cuda_ndarray__", False) else cuda.as_cuda_array(array)
    host: NDArray[Any] = array.copy_to_host() if len(array) else np.empty(0, array.dtype)
    return host


def tiles(length: int) -> int:
    """Return how many blocks have a tile of so many elements each."""
    return -(-length // TILE)


def strides(length: int) -> int:
    """Return how many blocks stride over so many elements."""
    return min(MOST_BLOCKS, -(-length // (THREADS * ITEMS)))


def launch(kernel: Any, blocks: int, *arguments: Any, threads: int = THREADS) -> None:
    """Run a kernel; nothing where there are no blocks."""
    if blocks:
        configured(kernel, blocks, threads)(*arguments)
