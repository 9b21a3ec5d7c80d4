"""The contract over every implementation, with sparse_ring.kernels.reference as the oracle."""

from __future__ import annotations

import pytest

from sparse_ring.kernels.base import Kernels
from sparse_ring.kernels.cpu.kernels import CpuKernels
from sparse_ring.kernels.table import kernels_for
from tests.contracts.kernel_cases import IMPLEMENTATIONS, NATIVE
from tests.contracts.kernel_chunks import ChunkContract, ChunkTwinContract
from tests.contracts.kernel_decoders import DecoderContract
from tests.contracts.kernel_factors import FactorContract, FactorTwinContract
from tests.contracts.kernel_interpolative import InterpolativeContract
from tests.contracts.kernel_position_decoders import PositionDecoderContract
from tests.contracts.kernel_quantize import QuantizeContract
from tests.contracts.kernel_twins import TwinContract
from tests.contracts.kernels import KernelsContract


@pytest.fixture(params=IMPLEMENTATIONS, scope="module")
def kernels(request: pytest.FixtureRequest) -> Kernels:
    return kernels_for(request.param)


@pytest.fixture(params=NATIVE, scope="module")
def native(request: pytest.FixtureRequest) -> Kernels:
    return CpuKernels(request.param)


class TestKernels(KernelsContract):
    pass


class TestDecoders(DecoderContract):
    pass


class TestPositionDecoders(PositionDecoderContract):
    pass


class TestQuantize(QuantizeContract):
    pass


class TestInterpolative(InterpolativeContract):
    pass


class TestTwins(TwinContract):
    pass


class TestFactors(FactorContract):
    pass


class TestFactorTwins(FactorTwinContract):
    pass


class TestChunks(ChunkContract):
    pass


class TestChunkTwins(ChunkTwinContract):
    pass
