"""Accumulation and updates on the device: one element a thread, every operation rounded once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda

from sparse_ring.kernels.base import Floats, Indices
from sparse_ring.kernels.cpu.indices import refuse_indices
from sparse_ring.kernels.cpu.values import need
from sparse_ring.kernels.cuda.memory import bring_back, empty, launch, on_device, strides, tiles
from sparse_ring.kernels.cuda.scan import worst_of
from sparse_ring.kernels.cuda.warp import (
    INFINITE,
    MAGNITUDE,
    THREADS,
    TILE,
    WARPS,
    add,
    bits_of,
    block_count,
    block_number,
    device,
    kernel,
    largest_of,
    multiply,
    subtract,
    sum_before,
    thread_number,
)

PLAIN, MOMENTUM, NESTEROV = range(3)
NEVER = INFINITE + 1  # a threshold that nothing reaches


def rounded(value: float) -> np.float32:
    """Return the float32 nearest to ``value``."""
    with np.errstate(over="ignore"):
        nearest: np.float32 = np.float32(value)
        return nearest


def float_bits(value: float) -> int:
    """Return the bits of the float32 nearest to ``value``."""
    return int(rounded(value).view(np.uint32))


@device
def first_place() -> Any:
    """Return the first element of this thread where all threads stride over an array."""
    return block_number() * THREADS + thread_number()


@device
def stride() -> Any:
    """Return how many threads there are."""
    return block_count() * THREADS


@device
def reaches(bits: Any, threshold: Any) -> Any:
    """Return whether the magnitude of a float32's bits has at least the bits ``threshold``; NaN never does."""
    magnitude = np.int64(bits) & MAGNITUDE
    return threshold <= magnitude and magnitude <= INFINITE


@kernel("float32[::1], float32[::1], float32[::1], float32, int64, int64, int64[::1]")
def accumulate_tiles(
    gradient: Any, velocity: Any, residual: Any, momentum: Any, form: Any, threshold: Any, counts: Any
) -> None:
    """Accumulate in one of three forms, and count what of each tile of the residual reaches the threshold then."""
    values = cuda.shared.array(THREADS, np.int64)
    of_warps = cuda.shared.array(WARPS, np.int64)
    thread, block = thread_number(), block_number()
    mine, end = np.int64(0), min((block + 1) * TILE, len(gradient))
    for i in range(block * TILE + thread, end, THREADS):
        added = gradient[i]
        if form != PLAIN:
            moved = add(multiply(momentum, velocity[i]), gradient[i])
            velocity[i] = moved
            added = moved
            if form == NESTEROV:
                added = add(multiply(momentum, moved), gradient[i])
        kept = add(residual[i], added)
        residual[i] = kept
        if reaches(bits_of(kept), threshold):
            mine += np.int64(1)
    total = sum_before(mine, values, of_warps)[1]
    if thread == 0:
        counts[block] = total


@kernel("uint32[::1], int64[::1]")
def find_not_finite(x: Any, flags: Any) -> None:
    """Leave 1 in a block's flag where one of its elements is NaN or infinite."""
    values = cuda.shared.array(THREADS, np.int64)
    of_warps = cuda.shared.array(WARPS, np.int64)
    bad = np.int64(0)
    for i in range(first_place(), len(x), stride()):
        if np.int64(x[i]) & MAGNITUDE >= INFINITE:
            bad = np.int64(1)
    bad = largest_of(bad, values, of_warps)
    if thread_number() == 0:
        flags[block_number()] = bad


@kernel("uint32[::1], int64, int64[::1]")
def find_out_of_bounds(indices: Any, numel: Any, flags: Any) -> None:
    """Leave 1 in a block's flag where one of its indices is not below ``numel``."""
    values = cuda.shared.array(THREADS, np.int64)
    of_warps = cuda.shared.array(WARPS, np.int64)
    bad = np.int64(0)
    for i in range(first_place(), len(indices), stride()):
        if np.int64(indices[i]) >= numel:
            bad = np.int64(1)
    bad = largest_of(bad, values, of_warps)
    if thread_number() == 0:
        flags[block_number()] = bad


@kernel("uint32[::1], float32[::1], float32[::1], float32[::1]")
def keep_unsent(indices: Any, values: Any, decoded: Any, residual: Any) -> None:
    """r[i] = values - decoded."""
    for i in range(first_place(), len(indices), stride()):
        residual[np.int64(indices[i])] = subtract(values[i], decoded[i])


@kernel("uint32[::1], float32[::1]")
def clear_sent(indices: Any, velocity: Any) -> None:
    """u[i] = 0."""
    for i in range(first_place(), len(indices), stride()):
        velocity[np.int64(indices[i])] = np.float32(0)


@kernel("uint32[::1], float32[::1], float32, float32[::1]")
def scatter_scaled(indices: Any, values: Any, scale: Any, out: Any) -> None:
    """out[i] = out[i] + values * scale."""
    for i in range(first_place(), len(indices), stride()):
        place = np.int64(indices[i])
        out[place] = add(out[place], multiply(values[i], scale))


@kernel("float32[::1], float32, float32[::1]")
def add_product(values: Any, scale: Any, out: Any) -> None:
    """out = out + values * scale."""
    for i in range(first_place(), len(values), stride()):
        out[i] = add(out[i], multiply(values[i], scale))


@kernel("uint32[::1], float32[::1], float32, float32[::1]")
def step_down(indices: Any, gradient: Any, rate: Any, parameter: Any) -> None:
    """p[i] = p[i] - rate * g[i]."""
    for i in range(first_place(), len(indices), stride()):
        place = np.int64(indices[i])
        parameter[place] = subtract(parameter[place], multiply(rate, gradient[place]))


class CudaArithmetic:
    """Kernels of one element at a time; see :class:`sparse_ring.kernels.base.Kernels`."""

    def all_finite(self, x: Floats) -> bool:
        """Return whether no element of ``x`` is NaN or infinite."""
        bits, blocks = on_device("x", x, np.float32).view(np.uint32), strides(len(x))
        flags = empty(blocks, np.int64)
        launch(find_not_finite, blocks, bits, flags)
        return blocks == 0 or not worst_of(flags)

    def accumulate(
        self, gradient: Floats, velocity: Floats | None, residual: Floats, momentum: float, nesterov: bool
    ) -> None:
        """Add the gradient into velocity and residual."""
        accumulated(gradient, velocity, residual, momentum, nesterov, NEVER)

    def update_residual(
        self, residual: Floats, velocity: Floats | None, indices: Indices, values: Floats, decoded: Floats
    ) -> None:
        """Keep what was not sent, and clear the velocity that was."""
        length, numel, blocks = len(indices), len(residual), strides(len(indices))
        need("values", len(values), length)
        need("decoded", len(decoded), length)
        if velocity is not None:
            need("velocity", len(velocity), numel)
        at = _indices_below(indices, numel)
        v, d = on_device("values", values, np.float32), on_device("decoded", decoded, np.float32)
        r = on_device("residual", residual, np.float32, writable=True)
        u = None if velocity is None else on_device("velocity", velocity, np.float32, writable=True)
        launch(keep_unsent, blocks, at, v, d, r)
        bring_back(r, residual)
        if velocity is not None:
            launch(clear_sent, blocks, at, u)
            bring_back(u, velocity)

    def scatter_add(self, out: Floats, indices: Indices, values: Floats, scale: float) -> None:
        """Add scaled values at the indices."""
        need("values", len(values), len(indices))
        at, v = _indices_below(indices, len(out)), on_device("values", values, np.float32)
        o = on_device("out", out, np.float32, writable=True)
        launch(scatter_scaled, strides(len(indices)), at, v, rounded(scale), o)
        bring_back(o, out)

    def add_scaled(self, out: Floats, values: Floats, scale: float) -> None:
        """Add scaled values everywhere."""
        need("out", len(out), len(values))
        v, o = on_device("values", values, np.float32), on_device("out", out, np.float32, writable=True)
        launch(add_product, strides(len(values)), v, rounded(scale), o)
        bring_back(o, out)

    def sparse_step(self, parameter: Floats, gradient: Floats, indices: Indices, rate: float) -> None:
        """``p[i] -= rate * g[i]`` at distinct ``indices``: product rounded, then the difference.

        ``parameter`` and ``gradient`` are ``float32[numel]``; see :func:`sparse_ring.kernels.reference.step.sparse_step`.
        Raises ValueError where an index is not below ``numel``; then nothing is changed.
        """
        need("gradient", len(gradient), len(parameter))
        at, g = _indices_below(indices, len(parameter)), on_device("gradient", gradient, np.float32)
        p = on_device("parameter", parameter, np.float32, writable=True)
        launch(step_down, strides(len(indices)), at, g, rounded(rate), p)
        bring_back(p, parameter)


def accumulated(
    gradient: Floats, velocity: Floats | None, residual: Floats, momentum: float, nesterov: bool, threshold: int
) -> tuple[Any, Any]:
    """Accumulate; return the residual on the device, and how many of each tile have magnitudes of at least these bits."""
    length = len(gradient)
    need("residual", len(residual), length)
    g, r = on_device("gradient", gradient, np.float32), on_device("residual", residual, np.float32, writable=True)
    u, form = r, PLAIN
    if velocity is not None:
        need("velocity", len(velocity), length)
        u = on_device("velocity", velocity, np.float32, writable=True)
        form = NESTEROV if nesterov else MOMENTUM
    counts = empty(tiles(length), np.int64)
    launch(accumulate_tiles, tiles(length), g, u, r, rounded(momentum), form, threshold, counts)
    bring_back(r, residual)
    if velocity is not None:
        bring_back(u, velocity)
    return r, counts


def _indices_below(indices: Indices, numel: int) -> Any:
    """The indices on the device; raises ValueError where one is not below ``numel``."""
    at, blocks = on_device("indices", indices, np.uint32), strides(len(indices))
    flags = empty(blocks, np.int64)
    launch(find_out_of_bounds, blocks, at, numel, flags)
    if blocks and worst_of(flags):
        refuse_indices(numel)
    return at
