"""Which kernels a name means."""

from __future__ import annotations

from functools import cache

from sparse_ring import _native
from sparse_ring.errors import ConfigError
from sparse_ring.kernels.base import Kernels
from sparse_ring.kernels.cpu import CpuKernels
from sparse_ring.kernels.reference import ReferenceKernels


@cache
def kernels_for(name: str = "auto") -> Kernels:
    """Return the kernels called ``name``: ``"reference"``, ``"scalar"``, ``"avx2"``, ``"avx512"``, or ``"auto"`` for the
    best native ones.

    Kernels keep no state, so each name has one instance. Raises ConfigError, listing the known names, where the name is
    unknown or this processor cannot run it.
    """
    native = _native.supported()
    if name == "reference":
        return ReferenceKernels()
    if name == "auto":
        return CpuKernels(native[-1])
    if name in native:
        return CpuKernels(name)
    raise ConfigError(
        "SPARSE_RING_KERNELS", name, f"one of {', '.join(['auto', *native, 'reference'])} on this machine"
    )
