"""Messages to mutate, of every code and of supports around every block size, and what decoding one must keep to."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sparse_ring import _native
from sparse_ring.encode import INDEX_CODES, VALUE_NAMES, WHOLE_NAMES, Codec, Coding, EveryIndex
from sparse_ring.errors import MessageError
from sparse_ring.exchange.exchanges import Exchanges
from sparse_ring.gradient.base import OptimizerStep, Pipeline
from sparse_ring.gradient.framed import FramedParameter
from sparse_ring.gradient.whole import ExactParameter
from sparse_ring.kernels.base import Kernels
from sparse_ring.kernels.table import kernels_for
from sparse_ring.message import Frame, MessageWriter, read_message
from sparse_ring.recipe import TopK
from sparse_ring.sparse import SparseGradient

STEP, PLAN = 3, 0x1234ABCD
# (kept, of): most are small, so that a million messages take minutes; the large ones reach every interleaved path.
SUPPORTS = [(0, 9), (1, 1), (5, 40), (33, 70), (130, 2000), (130, 140), (300, 3_000_000_000), (700, 70_000)]
# Elements of gradients that are sent whole: around bytes, chunks and blocks.
WHOLE = [1, 9, 70, 323, 600]
WHOLE_LARGE = [4099, 20_000]
LARGE = [(4100, 20_000), (17_000, 200_000)]


@dataclass(frozen=True)
class Sample:
    """A message with as many frames as ``numels``, of parameters with so many elements."""

    message: NDArray[np.uint8]
    numels: tuple[int, ...]


class Corpus:
    """The messages, and every table of kernels that this processor runs."""

    def __init__(self) -> None:
        self.kernels = [kernels_for(name) for name in _native.supported()]
        self.samples = list(_samples(self.kernels[0]))

    def refuses(self, sample: Sample, message: NDArray[np.uint8], number: int) -> bool:
        """Whether the message or a frame of it is refused."""
        kernels = self.kernels[number % len(self.kernels)]
        try:
            frames = read_message(message, STEP, PLAN, len(sample.numels), kernels)
        except MessageError:
            return True
        return any(isinstance(frame, MessageError) for frame in frames)

    def decode(self, sample: Sample, message: NDArray[np.uint8], number: int) -> Iterator[str]:
        """Decode and add each frame as the pipeline does; yield how each ended. Fails where a result breaks its promises."""
        kernels = self.kernels[number % len(self.kernels)]
        try:
            frames = read_message(_exact(message), STEP, PLAN, len(sample.numels), kernels)
        except MessageError as error:
            yield _reason(error)
            return
        for parameter, frame in enumerate(frames):
            yield self._decode_frame(parameter, frame, sample.numels[parameter], kernels, number)

    def _decode_frame(
        self, parameter: int, frame: Frame | MessageError, numel: int, kernels: Kernels, number: int
    ) -> str:
        if isinstance(frame, MessageError):
            return _reason(frame)
        shared = Pipeline(PLAN, kernels, Exchanges(kernels))
        # Only its number and size matter to decode, and an exact one has no residual.
        pipeline: FramedParameter = ExactParameter(shared, TopK(), parameter, f"p{parameter}", (numel,))
        frame = dataclasses.replace(frame, values=_exact(frame.values), indices=_exact(frame.indices))
        try:
            decoded = pipeline.decode(frame)
        except MessageError as error:
            return _reason(error)
        if decoded is None:
            return "decoded"
        values = decoded.values if isinstance(decoded, SparseGradient) else decoded
        assert np.isfinite(values).all(), f"message {number}: a value is not finite"
        if isinstance(decoded, SparseGradient):
            indices = decoded.indices
            assert np.all(indices[1:] > indices[:-1]), f"message {number}: indices are not increasing"
            assert not len(indices) or int(indices[-1]) < numel, f"message {number}: an index is out of bounds"
        else:
            assert len(values) == numel, f"message {number}: {len(values)} elements of {numel}"
        if numel < 1 << 20:
            pipeline.aggregate([decoded], OptimizerStep(), np.empty(numel, np.float32))
        return "decoded"


def _exact(payload: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A copy in memory of exactly its size, so that the sanitizer sees the first byte read behind it."""
    copy = np.empty(payload.size, np.uint8)
    copy[:] = payload
    return copy


def _reason(error: MessageError) -> str:
    """The reason without its numbers, for counting."""
    return re.sub(r"\b(?:0x[0-9a-f]+|[0-9a-f]{8}|\d+)\b", "N", error.reason)


def _samples(kernels: Kernels) -> Iterator[Sample]:
    generator = np.random.default_rng(0)
    names = [code.name for code in INDEX_CODES.values() if not isinstance(code, EveryIndex)]
    for kept, numel in SUPPORTS * 6 + LARGE:
        for index in names:
            if index == "bitmap" and numel > 1 << 20:
                continue
            yield _sample(kernels, generator, Codec.named(index, str(generator.choice(list(VALUE_NAMES)))), kept, numel)
    for number, numel in enumerate(WHOLE * 4 + WHOLE_LARGE):
        for name in WHOLE_NAMES:
            yield _whole_sample(kernels, generator, name, numel, number)


def _sample(kernels: Kernels, generator: np.random.Generator, codec: Codec, kept: int, numel: int) -> Sample:
    """A sparse frame, for the smaller ones with a dense and a flagged frame behind it."""
    indices = np.unique(generator.integers(0, numel, kept)).astype(np.uint32)
    values = generator.standard_normal(len(indices)).astype(np.float32)
    writer, decoded = MessageWriter(kernels), np.empty(max(len(indices), 9), np.float32)
    writer.begin(STEP, PLAN)
    writer.add_sparse(0, SparseGradient(indices, values, numel), codec, decoded[: len(indices)])
    if kept > 200:
        return Sample(writer.finish().copy(), (numel,))
    writer.add_dense_coded(1, generator.standard_normal(9).astype(np.float32), codec.value, decoded[:9])
    writer.add_nonfinite(2, codec)
    return Sample(writer.finish().copy(), (numel, 9, 5))


def _whole_sample(kernels: Kernels, generator: np.random.Generator, name: str, numel: int, seed: int) -> Sample:
    """A gradient that is sent whole."""
    values = generator.standard_normal(numel).astype(np.float32)
    writer = MessageWriter(kernels)
    writer.begin(STEP, PLAN)
    writer.add_dense_coded(0, values, WHOLE_NAMES[name].given(Coding(seed=seed, scale=1.5)), np.empty_like(values))
    return Sample(writer.finish().copy(), (numel,))
