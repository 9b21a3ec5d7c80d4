"""What the index codes share on the device: whether indices increase, and what is said of those that don't."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numba import cuda

from sparse_ring.errors import MessageError
from sparse_ring.kernels import reasons
from sparse_ring.kernels.base import Bytes, Indices
from sparse_ring.kernels.cpu.indices import need_numel, refuse_indices
from sparse_ring.kernels.cuda.arithmetic import first_place, stride
from sparse_ring.kernels.cuda.memory import empty, launch, on_device, strides
from sparse_ring.kernels.cuda.scan import worst_of
from sparse_ring.kernels.cuda.warp import THREADS, WARPS, block_number, device, kernel, largest_of, thread_number

GAP_NOT_POSITIVE = 2
NOT_BELOW = 1


@kernel("uint32[::1], int64, int64, int64[::1]")
def find_disorder(indices: Any, length: Any, numel: Any, flags: Any) -> None:
    """Leave in a block's flag GAP_NOT_POSITIVE where an index is not above the one before, or NOT_BELOW ``numel``."""
    values = cuda.shared.array(THREADS, np.int64)
    of_warps = cuda.shared.array(WARPS, np.int64)
    bad = np.int64(0)
    for i in range(first_place(), length, stride()):
        if np.int64(indices[i]) >= numel:
            bad = max(bad, np.int64(NOT_BELOW))
        if i > 0 and np.int64(indices[i]) <= np.int64(indices[i - 1]):
            bad = max(bad, np.int64(GAP_NOT_POSITIVE))
    bad = largest_of(bad, values, of_warps)
    if thread_number() == 0:
        flags[block_number()] = bad


@device
def gap_before(indices: Any, i: Any) -> Any:
    """Return the gap before element i: its index less the one before and less 1."""
    if i == 0:
        return np.int64(indices[0])
    return np.int64(indices[i]) - np.int64(indices[i - 1]) - np.int64(1)


@kernel("int64[::1], int64, uint32[::1]")
def take_positions(positions: Any, length: Any, indices: Any) -> None:
    """indices = positions."""
    for i in range(first_place(), length, stride()):
        indices[i] = positions[i]


def disorder_of(indices: Any, numel: int) -> int:
    """Return 0 where indices on the device increase strictly below ``numel``, else what is wrong with them."""
    blocks = strides(len(indices))
    flags = empty(blocks, np.int64)
    launch(find_disorder, blocks, indices, len(indices), numel, flags)
    return worst_of(flags) if blocks else 0


def ordered(indices: Indices, numel: int) -> Any:
    """Return the indices on the device; raises ValueError unless they increase strictly below ``numel``."""
    need_numel(numel)
    at = on_device("indices", indices, np.uint32)
    if disorder_of(at, numel):
        refuse_indices(numel)
    return at


def need_room(out: Bytes, bound: int) -> None:
    """Raise ValueError where ``out`` holds fewer bytes than ``bound``."""
    if len(out) < bound:
        raise ValueError(f"out has {len(out)} bytes, but must have at least {bound}.")


def refuse(code: str, reason: str) -> NoReturn:
    """Raise the MessageError of a decoder."""
    raise MessageError(f"{code}: {reason}")


def refuse_disorder(code: str, indices: Any, numel: int) -> None:
    """Raise MessageError unless decoded indices increase strictly below ``numel``."""
    bad = disorder_of(indices, numel)
    if bad:
        refuse(code, reasons.ORDER if bad == GAP_NOT_POSITIVE else reasons.INDEX)
