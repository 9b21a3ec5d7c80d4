"""What kernels are written with, on the device: threads, votes, bits, and arithmetic that is rounded where it says so.

``cuda_simulated.py`` has the same names for the simulator, and ``cuda_warp.py`` chooses. Every operation on floats goes through
libdevice's ``_rn`` functions: each becomes one PTX instruction with its rounding spelled out, which no compiler may
contract into a fused multiply-add.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cuda
from numba.cuda import libdevice
from numba.cuda.core import config

ALL_LANES = 0xFFFFFFFF


def device(function: Callable[..., Any]) -> Any:
    """Make a function callable from kernels."""
    return cuda.jit(device=True)(function)


def jit(function: Callable[..., None]) -> Any:
    """Make a kernel, compiled when it is first launched: to the PTX that tests look at, not to an intermediate form."""
    return cuda.jit(lto=False)(function)


def configured(kernel: Any, blocks: int, threads: int) -> Any:
    """Return the kernel ready to be called; few blocks are meant to be few, so Numba's warning of them is not wanted."""
    warns = config.CUDA_LOW_OCCUPANCY_WARNINGS
    config.CUDA_LOW_OCCUPANCY_WARNINGS = 0
    try:
        return kernel[blocks, threads]
    finally:
        config.CUDA_LOW_OCCUPANCY_WARNINGS = warns


@device
def thread_number() -> Any:
    """Return this thread's number in its block, int64."""
    return np.int64(cuda.threadIdx.x)


@device
def block_number() -> Any:
    """Return this block's number, int64."""
    return np.int64(cuda.blockIdx.x)


@device
def block_count() -> Any:
    """Return how many blocks were launched, int64."""
    return np.int64(cuda.gridDim.x)


@device
def sync() -> None:
    """Wait for all threads of the block."""
    cuda.syncthreads()


@device
def ballot(vote: bool) -> Any:
    """Return int64 with bit i set where lane i of this warp votes yes; all threads of the block call it together."""
    return np.int64(cuda.ballot_sync(ALL_LANES, vote)) & ALL_LANES


@device
def count_bits(x: Any) -> Any:
    """Return how many bits of an int64 are set."""
    return np.int64(cuda.popc(np.int64(x)))


@device
def bit_length(x: Any) -> Any:
    """Return the position above the highest set bit of an int64 >= 0; 0 for 0."""
    return np.int64(64) - np.int64(cuda.clz(np.int64(x)))


@device
def trailing_zeros(x: Any) -> Any:
    """Return the position of the lowest set bit of an int64 that is not 0."""
    return np.int64(cuda.ffs(np.int64(x))) - np.int64(1)


@device
def multiply(a: Any, b: Any) -> Any:
    """Return the float32 product, rounded once."""
    return libdevice.fmul_rn(a, b)


@device
def add(a: Any, b: Any) -> Any:
    """Return the float32 sum, rounded once."""
    return libdevice.fadd_rn(a, b)


@device
def subtract(a: Any, b: Any) -> Any:
    """Return the float32 difference, rounded once."""
    return libdevice.fsub_rn(a, b)


@device
def divide(a: Any, b: Any) -> Any:
    """Return the float32 quotient, rounded once."""
    return libdevice.fdiv_rn(a, b)


@device
def square_root(a: Any) -> Any:
    """Return the float32 square root, rounded once."""
    return libdevice.fsqrt_rn(a)


@device
def add_doubles(a: Any, b: Any) -> Any:
    """Return the float64 sum, rounded once."""
    return libdevice.dadd_rn(a, b)


@device
def multiply_doubles(a: Any, b: Any) -> Any:
    """Return the float64 product, rounded once."""
    return libdevice.dmul_rn(a, b)


@device
def divide_doubles(a: Any, b: Any) -> Any:
    """Return the float64 quotient, rounded once."""
    return libdevice.ddiv_rn(a, b)


@device
def square_root_double(a: Any) -> Any:
    """Return the float64 square root, rounded once."""
    return libdevice.dsqrt_rn(a)


@device
def nearest_float(x: Any) -> Any:
    """Return the float32 nearest to a float64."""
    return libdevice.double2float_rn(x)


@device
def nearest_whole(x: Any) -> Any:
    """Return the whole number nearest to a float32, ties to even, as int64; it must have room there."""
    return np.int64(libdevice.float2ll_rn(x))


@device
def bits_of(x: Any) -> Any:
    """Return the bits of a float32 as int64 below 2**32."""
    return np.int64(libdevice.float_as_int(x)) & np.int64(0xFFFFFFFF)


@device
def float_of(bits: Any) -> Any:
    """Return the float32 of the lowest 32 bits of an int64."""
    return libdevice.int_as_float(np.int32(bits))


@device
def double_bits(x: Any) -> Any:
    """Return the bits of a float64 as int64."""
    return np.int64(libdevice.double_as_longlong(x))


@device
def double_of(bits: Any) -> Any:
    """Return the float64 of an int64's bits."""
    return libdevice.longlong_as_double(bits)


@device
def half_of(x: Any) -> Any:
    """Return the bits of a float32 rounded to float16 (nearest even), int64 below 2**16."""
    return np.int64(libdevice.float2half_rn(x)) & np.int64(0xFFFF)


@device
def float_of_half(bits: Any) -> Any:
    """Return the float32 of the float16 in the lowest 16 bits of an int64."""
    return libdevice.half2float(np.int16(bits))
