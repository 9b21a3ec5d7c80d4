"""One compression step end to end, beside torch.topk and numpy.argpartition with raw pairs, and beside general compressors."""

from __future__ import annotations

import importlib.util
import statistics
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.kernels import DENSITY, ELEMENTS, MOMENTUM
from benchmarks.measure import ratio_of, rounds
from sparse_ring.encode import Codec
from sparse_ring.error_feedback import MomentumResidual
from sparse_ring.kernels.base import Bytes, Floats
from sparse_ring.kernels.table import kernels_for
from sparse_ring.select import ExactTopK, Scratch
from sparse_ring.sparse import SparseGradient

REPEATS, WARMUP = 15, 5
KEEP = int(DENSITY * ELEMENTS)
AIM = 15.0


def pack(values: np.ndarray, indices: np.ndarray) -> Bytes:
    """Raw float32 and int32, one after the other."""
    return np.concatenate([values.view(np.uint8), indices.astype(np.int32).view(np.uint8)])


class Ours:
    """Finite check, accumulation, ExactTopK, Golomb and float16, residual: as the pipeline does."""

    def __init__(self) -> None:
        self.kernels, self.scratch, self.selector = kernels_for(), Scratch(), ExactTopK()
        self.feedback = MomentumResidual(ELEMENTS, self.kernels)
        self.codec = Codec.named("golomb", "float16")
        self.out = np.zeros((self.codec.bound(KEEP, ELEMENTS) + 3) // 4 * 4, np.uint8)

    def step(self, gradient: Floats) -> Bytes:
        """Return the bytes."""
        assert self.kernels.all_finite(gradient)
        sparse = self.selector.select(self.feedback, gradient, MOMENTUM, False, KEEP, self.kernels, self.scratch)
        decoded = self.scratch.decoded[: sparse.count]
        encoded = self.codec.encode(sparse, self.out, decoded, self.kernels)
        self.feedback.sent(SparseGradient(sparse.indices, decoded, ELEMENTS))
        return self.out[: encoded.value_bytes + encoded.index_bytes]


class Torch:
    """The same state with torch's functions, raw pairs."""

    def __init__(self) -> None:
        self.velocity, self.residual, self.scratch = torch.zeros(ELEMENTS), torch.zeros(ELEMENTS), torch.empty(ELEMENTS)

    def step(self, gradient: Floats) -> Bytes:
        """Return the bytes."""
        self.velocity.mul_(MOMENTUM).add_(torch.from_numpy(gradient))
        self.residual.add_(self.velocity)
        indices = torch.topk(torch.abs(self.residual, out=self.scratch), KEEP, sorted=False).indices
        values = self.residual[indices]
        self.residual.index_fill_(0, indices, 0)
        self.velocity.index_fill_(0, indices, 0)
        return pack(values.numpy(), indices.numpy())


class Numpy:
    """The same with NumPy's."""

    def __init__(self) -> None:
        self.velocity, self.residual, self.scratch = (np.zeros(ELEMENTS, np.float32) for _ in range(3))

    def step(self, gradient: Floats) -> Bytes:
        """Return the bytes."""
        np.multiply(self.velocity, np.float32(MOMENTUM), out=self.velocity)
        self.velocity += gradient
        self.residual += self.velocity
        indices = np.argpartition(np.abs(self.residual, out=self.scratch), ELEMENTS - KEEP)[ELEMENTS - KEEP :]
        values = self.residual[indices]
        self.residual[indices] = 0
        self.velocity[indices] = 0
        return pack(values, indices)


def end_to_end(progress: Callable[[str], None]) -> dict[str, Any]:
    """Steps of all on fresh normal gradients, each with its own residual; the bytes of the last ones."""
    rng, gradient = np.random.default_rng(0), np.empty(ELEMENTS, np.float32)
    parties = {"sparse_ring": Ours(), "torch.topk": Torch(), "numpy.argpartition": Numpy()}
    written: dict[str, int] = {}
    turn = 0

    def fresh() -> None:
        nonlocal turn
        if turn % len(parties) == 0:
            progress(f"end to end, step {turn // len(parties)} of {WARMUP + REPEATS}")
            rng.standard_normal(out=gradient, dtype=np.float32)
        turn += 1

    def call(name: str) -> None:
        written[name] = len(parties[name].step(gradient))

    candidates: dict[str, Callable[[], object]] = {name: (lambda name=name: call(name)) for name in parties}
    seconds = {name: times[WARMUP:] for name, times in rounds(candidates, WARMUP + REPEATS, before=fresh).items()}
    ratios = {name: ratio_of(seconds[name], seconds["sparse_ring"]) for name in parties if name != "sparse_ring"}
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    return {"elements": ELEMENTS, "kept": KEEP, "seconds": medians, "bytes": written, "ratios": ratios}


def compressors() -> dict[str, Any]:
    """Bytes and time of general compressors on the sorted raw pairs, beside our codecs on the same elements."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal(ELEMENTS, dtype=np.float32)
    threshold = kernels_for().kth_magnitude(x, KEEP, np.empty_like(x))
    indices = np.flatnonzero(np.abs(x) >= threshold).astype(np.uint32)
    sparse = SparseGradient(indices, x[indices], ELEMENTS)
    raw = pack(sparse.values, indices)
    sizes: dict[str, int] = {"raw float32 + int32": raw.size}
    candidates: dict[str, Callable[[], object]] = {}

    def add(name: str, compress: Callable[[], int]) -> None:
        sizes[name] = compress()
        candidates[name] = compress

    add("zlib, level 6", lambda: len(zlib.compress(raw.data, 6)))
    skipped = []
    if importlib.util.find_spec("zstandard") is None:
        skipped.append("zstandard is not installed here (it is part of the dev extra), so it is no peer.")
    else:
        import zstandard

        for level in (3, 19):
            compressor = zstandard.ZstdCompressor(level=level)
            add(f"zstandard, level {level}", lambda compressor=compressor: len(compressor.compress(raw.data)))
    decoded = np.empty_like(sparse.values)
    for index, value in (("golomb", "float32"), ("golomb", "float16"), ("golomb", "int4"), ("golomb", "sign")):
        codec = Codec.named(index, value)
        out = np.zeros((codec.bound(KEEP, ELEMENTS) + 3) // 4 * 4, np.uint8)

        def encode(codec: Codec = codec, out: Bytes = out) -> int:
            encoded = codec.encode(sparse, out, decoded, kernels_for())
            return encoded.value_bytes + encoded.index_bytes

        add(f"{index} + {value}", encode)
    seconds = {name: statistics.median(times) for name, times in rounds(candidates, 5).items()}
    return {"kept": KEEP, "bytes": sizes, "seconds": seconds, "skipped": skipped}
