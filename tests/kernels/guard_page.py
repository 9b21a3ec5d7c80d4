"""Run by test_bounds.py: decodes payloads that end where readable memory ends, so that one byte too many is a fault."""

from __future__ import annotations

import ctypes
import mmap
import sys

import numpy as np

from sparse_ring.errors import MessageError
from sparse_ring.kernels.base import Bytes, levels_size
from sparse_ring.kernels.cpu.kernels import CpuKernels
from sparse_ring.kernels.quantize import SCHEMES
from tests.contracts.kernel_cases import BOUNDS, INDEX_CODES, MOST_BITMAP_NUMEL
from tests.kernels.guard_factors import multiply_at_the_end

PAGES = 32  # a bitmap of a million positions
PROT_NONE = 0


def main(name: str) -> None:
    """Decode whole, truncated and damaged payloads of every size class at the end of a page."""
    kernels = CpuKernels(name)
    memory = mmap.mmap(-1, (PAGES + 1) * mmap.PAGESIZE)
    anchor = ctypes.c_char.from_buffer(memory)
    forbidden = ctypes.c_void_p(ctypes.addressof(anchor) + PAGES * mmap.PAGESIZE)
    if ctypes.CDLL(None, use_errno=True).mprotect(forbidden, ctypes.c_size_t(mmap.PAGESIZE), PROT_NONE):
        raise OSError(ctypes.get_errno(), "mprotect")
    readable = np.frombuffer(memory, dtype=np.uint8)[: PAGES * mmap.PAGESIZE]

    def at_the_end(payload: Bytes) -> Bytes:
        place = readable[len(readable) - len(payload) :]
        place[:] = payload
        return place

    rng = np.random.default_rng(0)
    decoded = 0
    for count, numel in [
        (1, 1),
        (1, 2**31),
        (3, 90),
        (127, 10**6),
        (128, 2000),
        (129, 3000),
        (4097, 5000),
        (9000, 10**5),
    ]:
        indices = np.unique(rng.integers(0, numel, count)).astype(np.uint32)
        for code in INDEX_CODES if numel <= MOST_BITMAP_NUMEL else set(INDEX_CODES) - {"bitmap"}:
            out = np.zeros(BOUNDS[code](len(indices), numel), dtype=np.uint8)
            payload = out[: getattr(kernels, f"{code}_encode")(indices, numel, out)]
            for length in {len(payload), *rng.integers(0, len(payload) + 1, 50).tolist()}:
                for damage in (0, 1):
                    damaged = payload[:length].copy()
                    damaged[rng.integers(0, length, damage * min(length, 1))] ^= 0x10
                    scratch = np.zeros_like(indices)
                    try:
                        getattr(kernels, f"{code}_decode")(at_the_end(damaged), numel, scratch)
                        decoded += 1
                    except MessageError:
                        pass
        values = np.zeros(len(indices), dtype=np.float32)
        kernels.sign_decode(at_the_end(np.zeros((len(values) + 7) // 8, dtype=np.uint8)), 1.0, values)
        halves = at_the_end(np.zeros(2 * min(len(values), mmap.PAGESIZE - 3), dtype=np.uint8)).view(np.uint16)
        kernels.float16_decode(halves, 1.0, values[: len(halves)])
        kernels.bfloat16_decode(halves, values[: len(halves)])
        for bits in (2, 3, 4, 8):
            kernels.levels_decode(at_the_end(np.zeros(levels_size(len(values), bits), np.uint8)), bits, 1.0, values)
        for scheme in SCHEMES:
            said, whole = np.zeros_like(values), np.zeros(scheme.size(len(values)), np.uint8)
            near = at_the_end(rng.standard_normal(len(values)).astype(np.float32).view(np.uint8)).view(np.float32)
            kernels.quantize_encode(near, scheme, 1.0, 1, whole, said)
            kernels.quantize_decode(at_the_end(whole), scheme, 1.0, values)
            assert values.tobytes() == said.tobytes()
            kernels.quantize_encode(np.abs(said), scheme, 1.0, 1, at_the_end(whole), values)
            kernels.quantize_encode(
                np.abs(said), scheme, 1.0, 1, whole, at_the_end(values.view(np.uint8)).view(np.float32)
            )
        floats = at_the_end(np.zeros(4 * (mmap.PAGESIZE - 5), dtype=np.uint8)).view(np.float32)
        kernels.all_finite(floats)
        kernels.sum_magnitudes(floats)
        kernels.select(floats, 1.0, np.zeros(16, np.uint32), np.zeros(16, np.float32))
        kernels.select_chunks(floats, 4, np.zeros(20, np.uint32), np.zeros(20, np.float32))
    multiply_at_the_end(kernels, at_the_end)
    print(f"decoded {decoded}")


if __name__ == "__main__":
    main(sys.argv[1])
