"""Which kernels a name means."""

from __future__ import annotations

from functools import cache

from sparse_ring import _native
from sparse_ring.errors import ConfigError
from sparse_ring.kernels.base import Kernels
from sparse_ring.kernels.cpu.kernels import CpuKernels
from sparse_ring.kernels.reference.kernels import ReferenceKernels


@cache
def kernels_for(name: str = "auto") -> Kernels:
    """Return the kernels called ``name``: ``"reference"``, ``"scalar"``, ``"avx2"``, ``"avx512"``, ``"cuda"``, or ``"auto"``
    for the best native ones.

    Kernels keep no state, so each name has one instance. Raises ConfigError, listing the known names, where the name is
    unknown or this machine cannot run it; Numba is imported for ``"cuda"`` only.
    """
    native = _native.supported()
    if name == "reference":
        return ReferenceKernels()
    if name == "auto":
        return CpuKernels(native[-1])
    if name in native:
        return CpuKernels(name)
    known = f"one of {', '.join(['auto', *native, 'reference'])} on this machine"
    if name == "cuda":
        return _cuda(known)
    raise ConfigError("SPARSE_RING_KERNELS", name, f"{known}, or cuda on one with a GPU")


def _cuda(known: str) -> Kernels:
    try:
        from numba import cuda
    except ImportError:
        raise ConfigError(
            "SPARSE_RING_KERNELS", "cuda", f"{known}: Numba is missing (pip install 'sparse-ring[cuda]')"
        ) from None
    if not cuda.is_available():
        raise ConfigError("SPARSE_RING_KERNELS", "cuda", f"{known}: Numba finds no CUDA device")
    from sparse_ring.kernels.cuda.kernels import CudaKernels

    return CudaKernels()
