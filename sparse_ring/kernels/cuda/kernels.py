"""The kernels on a GPU, in Numba CUDA: the same bits and bytes as on the CPU; see ``docs/architecture.md``, "The GPU twin".

Needs ``pip install sparse_ring[cuda]`` and a device, or numba's simulator (NUMBA_ENABLE_CUDASIM=1).

What is copied: an argument that lies on the device (``__cuda_array_interface__``: torch's CUDA tensors, Numba's and CuPy's arrays)
is used where it lies. A host array that a kernel reads goes over whole, before the kernels of a call; one that is written comes
back after them, as far as it was written. Results that are numbers come back always: counts, scales, sizes, and the flags of
each check, a few kilobytes at most (the k-th magnitude takes eight rounds of at most 128 KiB). From a payload on the device, its
header, its directory, its last byte and ``four4``'s number of a table come to the host, where they are checked.
"""

from __future__ import annotations

import zlib

import numpy as np

from sparse_ring.kernels.base import Bytes
from sparse_ring.kernels.cuda.bfloat16 import CudaBFloat16
from sparse_ring.kernels.cuda.bitpack import CudaBitpack
from sparse_ring.kernels.cuda.block16 import CudaBlock16
from sparse_ring.kernels.cuda.chunks import CudaChunks
from sparse_ring.kernels.cuda.factors import CudaFactors
from sparse_ring.kernels.cuda.golomb import CudaGolomb
from sparse_ring.kernels.cuda.halves import CudaHalves
from sparse_ring.kernels.cuda.interpolative import CudaInterpolative
from sparse_ring.kernels.cuda.levels import CudaLevels
from sparse_ring.kernels.cuda.memory import on_host
from sparse_ring.kernels.cuda.positions import CudaPositions
from sparse_ring.kernels.cuda.quantize import CudaQuantize
from sparse_ring.kernels.cuda.select import CudaSelection
from sparse_ring.kernels.cuda.sum import CudaSums
from sparse_ring.kernels.cuda.values import CudaValues


class CudaKernels(
    CudaSelection,
    CudaChunks,
    CudaSums,
    CudaGolomb,
    CudaInterpolative,
    CudaBitpack,
    CudaPositions,
    CudaBlock16,
    CudaValues,
    CudaBFloat16,
    CudaHalves,
    CudaLevels,
    CudaQuantize,
    CudaFactors,
):
    """Every kernel, a family a base class and a file; see :mod:`sparse_ring.kernels.base`.

    Kernels run on the current device's default stream. A call returns when its host outputs and its result are there; what it
    writes on the device is ordered by that stream. A new family of kernels is one more file and one more base class here.
    """

    name = "cuda"

    def crc32(self, data: Bytes, start: int = 0) -> int:
        """CRC-32 of ``data``, by zlib on the host.

        A checksum is of a whole message, which the transports send from and receive into host memory: its bytes are there already.
        """
        return zlib.crc32(np.ascontiguousarray(on_host(data)).data, start)
