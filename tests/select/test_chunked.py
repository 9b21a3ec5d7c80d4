import numpy as np

from sparse_ring.error_feedback import Residual
from sparse_ring.kernels.base import chunks_keep
from sparse_ring.kernels.table import kernels_for
from sparse_ring.select import LargestOfChunks, Scratch
from tests.select.test_selectors import largest

F = np.float32
KERNELS = kernels_for()


def test_every_chunk_sends_its_largest_of_what_waits():
    gradient = np.random.default_rng(0).standard_normal(10_000).astype(F)
    gradient[4096:8192] *= 1000
    feedback, keep = Residual(10_000, KERNELS), chunks_keep(10_000, 41)
    feedback.accumulated[5] = 99
    sparse = LargestOfChunks(41).select(feedback, gradient, 0.0, False, keep, KERNELS, Scratch())
    accumulated = gradient.copy()
    accumulated[5] += 99
    expected = np.concatenate(
        [
            first + largest(accumulated[first : first + 4096], count)
            for first, count in ((0, 41), (4096, 41), (8192, 18))
        ]
    )
    assert sparse.indices.tolist() == expected.tolist()
    assert sparse.values.tobytes() == accumulated[expected].tobytes()
    assert sparse.count == keep == 100


def test_chunks_of_zeros_send_nothing():
    gradient = np.zeros(9000, F)
    gradient[4100] = -1
    sparse = LargestOfChunks(41).select(Residual(9000, KERNELS), gradient, 0.0, False, 90, KERNELS, Scratch())
    assert sparse.indices.tolist() == [4100]
