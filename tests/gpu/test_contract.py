"""The contract of the kernels, over the twin in numba's simulator (all of sparse_ring.kernels.cuda): suites and golden bytes."""

from __future__ import annotations

import pytest

from sparse_ring.kernels.base import Kernels
from sparse_ring.kernels.table import kernels_for
from tests.contracts.kernel_chunks import ChunkContract, ChunkTwinContract
from tests.contracts.kernel_decoders import DecoderContract
from tests.contracts.kernel_factors import FactorContract, FactorTwinContract
from tests.contracts.kernel_interpolative import InterpolativeContract
from tests.contracts.kernel_position_decoders import PositionDecoderContract
from tests.contracts.kernel_quantize import QuantizeContract
from tests.contracts.kernel_twins import TwinContract
from tests.contracts.kernels import KernelsContract


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    return kernels_for("cuda")


@pytest.fixture(scope="module")
def native() -> Kernels:
    return kernels_for("cuda")


class TestKernels(KernelsContract):
    pass


class TestDecoders(DecoderContract):
    pass


class TestPositionDecoders(PositionDecoderContract):
    pass


class TestInterpolative(InterpolativeContract):
    pass


class TestTwins(TwinContract):
    pass


class TestQuantize(QuantizeContract):
    pass


class TestFactors(FactorContract):
    pass


class TestFactorTwins(FactorTwinContract):
    pass


class TestChunks(ChunkContract):
    pass


class TestChunkTwins(ChunkTwinContract):
    pass
