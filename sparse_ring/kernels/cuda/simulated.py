"""The simulator's twins of ``cuda_hardware.py``: the same names, meanings and bits, in NumPy scalars.

The simulator of numba-cuda runs each thread of a block as a thread of Python. It has no votes of a warp, and its libdevice
functions give NaN, which is why these exist.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cuda

WARP = 32
ALL_LANES = 0xFFFFFFFF


def device(function: Callable[..., Any]) -> Any:
    """Leave the function as it is: the simulator calls it like any other."""
    return function


def jit(function: Callable[..., None]) -> Any:
    """Make a kernel that the simulator runs."""
    return cuda.jit(function)


def configured(kernel: Any, blocks: int, threads: int) -> Any:
    """Return the kernel ready to be called."""
    return kernel[blocks, threads]


def _thread() -> Any:
    return threading.current_thread()


def thread_number() -> Any:
    """Return this thread's number in its block."""
    return np.int64(_thread().threadIdx.x)


def block_number() -> Any:
    """Return this block's number."""
    return np.int64(_thread().blockIdx.x)


def block_count() -> Any:
    """Return how many blocks were launched."""
    return np.int64(_thread()._manager._grid_dim[0])


def sync() -> None:
    """Wait for all threads of the block."""
    _thread().syncthreads()


def ballot(vote: bool) -> Any:
    """Return a number with bit i set where lane i of this warp votes yes; all threads of the block call it together."""
    thread = _thread()
    votes = thread._manager.block_state.reshape(-1)
    votes[thread.thread_id] = vote
    thread.syncthreads()
    first = thread.thread_id // WARP * WARP
    mask = sum(int(voted) << lane for lane, voted in enumerate(votes[first : first + WARP]))
    thread.syncthreads()
    return np.int64(mask)


def count_bits(x: Any) -> Any:
    """Return how many bits are set."""
    return np.int64(bin(int(x)).count("1"))


def bit_length(x: Any) -> Any:
    """Return the position above the highest set bit; 0 for 0."""
    return np.int64(int(x).bit_length())


def trailing_zeros(x: Any) -> Any:
    """Return the position of the lowest set bit of a number that is not 0."""
    return np.int64((int(x) & -int(x)).bit_length() - 1)


@np.errstate(all="ignore")
def multiply(a: Any, b: Any) -> Any:
    """Return the float32 product."""
    return np.multiply(a, b, dtype=np.float32)


@np.errstate(all="ignore")
def add(a: Any, b: Any) -> Any:
    """Return the float32 sum."""
    return np.add(a, b, dtype=np.float32)


@np.errstate(all="ignore")
def subtract(a: Any, b: Any) -> Any:
    """Return the float32 difference."""
    return np.subtract(a, b, dtype=np.float32)


@np.errstate(all="ignore")
def divide(a: Any, b: Any) -> Any:
    """Return the float32 quotient."""
    return np.divide(a, b, dtype=np.float32)


@np.errstate(all="ignore")
def square_root(a: Any) -> Any:
    """Return the float32 square root."""
    return np.sqrt(a, dtype=np.float32)


@np.errstate(all="ignore")
def add_doubles(a: Any, b: Any) -> Any:
    """Return the float64 sum."""
    return np.add(a, b, dtype=np.float64)


@np.errstate(all="ignore")
def multiply_doubles(a: Any, b: Any) -> Any:
    """Return the float64 product."""
    return np.multiply(a, b, dtype=np.float64)


@np.errstate(all="ignore")
def divide_doubles(a: Any, b: Any) -> Any:
    """Return the float64 quotient."""
    return np.divide(a, b, dtype=np.float64)


@np.errstate(all="ignore")
def square_root_double(a: Any) -> Any:
    """Return the float64 square root."""
    return np.sqrt(a, dtype=np.float64)


@np.errstate(all="ignore")
def nearest_float(x: Any) -> Any:
    """Return the float32 nearest to a float64."""
    return np.float32(x)


def nearest_whole(x: Any) -> Any:
    """Return the whole number nearest to a float32, ties to even."""
    return np.int64(np.rint(x))


def bits_of(x: Any) -> Any:
    """Return the bits of a float32."""
    return np.int64(np.float32(x).view(np.uint32))


def float_of(bits: Any) -> Any:
    """Return the float32 of the lowest 32 bits."""
    return np.uint32(int(bits) & ALL_LANES).view(np.float32)


def double_bits(x: Any) -> Any:
    """Return the bits of a float64."""
    return np.float64(x).view(np.int64)


def double_of(bits: Any) -> Any:
    """Return the float64 of 64 bits."""
    return np.int64(bits).view(np.float64)


@np.errstate(all="ignore")
def half_of(x: Any) -> Any:
    """Return the bits of a float32 rounded to float16."""
    return np.int64(np.float32(x).astype(np.float16).view(np.uint16))


@np.errstate(all="ignore")
def float_of_half(bits: Any) -> Any:
    """Return the float32 of the float16 in the lowest 16 bits."""
    return np.uint16(int(bits) & 0xFFFF).view(np.float16).astype(np.float32)
