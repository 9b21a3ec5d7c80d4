"""The index codes on what training really selects (kept for the benchmark of the codec)."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.codec.bits import payload_bytes, real
from benchmarks.codec.supports import load, save
from sparse_ring.encode import INDEX_CHOICES, IndexCode, Interpolative
from sparse_ring.kernels.table import kernels_for

KERNELS = kernels_for()
SUPPORTS = load()


def test_interpolative_takes_fewer_bits_than_evenly_spread_positions_hold():
    groups = real()["groups"]
    assert set(groups) == {"digits CNN, 1.0%", "digits CNN, 0.1%", "byte LM, 1.0%", "byte LM, 0.1%"}
    for row in groups.values():
        assert row["interpolative_bits"] < row["limit_bits"] < row["golomb_bits"]


@pytest.mark.parametrize("name", [name for name, code in INDEX_CHOICES.items() if isinstance(code, IndexCode)])
def test_all_codes_keep_real_positions(name):
    code = INDEX_CHOICES[name]
    assert isinstance(code, IndexCode)
    for support in SUPPORTS[::7]:
        out = np.empty(code.bound(len(support.indices), support.numel), np.uint8)
        size = code.encode(support.indices, support.numel, out, KERNELS)
        assert size == payload_bytes(name, support.indices, support.numel)
        decoded = np.empty_like(support.indices)
        code.decode(out[:size].copy(), support.numel, decoded, KERNELS)
        assert decoded.tolist() == support.indices.tolist()


def test_supports_survive_their_file(tmp_path):
    save(SUPPORTS[:9], tmp_path / "some.npz")
    for read, written in zip(load(tmp_path / "some.npz"), SUPPORTS[:9], strict=True):
        assert (read.parameter, read.shape, read.step) == (written.parameter, written.shape, written.step)
        assert read.indices.tolist() == written.indices.tolist()
        assert Interpolative().size(read.indices, read.numel, KERNELS) > 0
