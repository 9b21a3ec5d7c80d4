"""Types of the native module; ``native/kernels.h`` says what the functions do, ``native/module.cpp`` how they are bound."""

import numpy as np
from numpy.typing import NDArray

class Table:
    """Kernels of one instruction set. The first argument is the number of elements of work; lengths are not checked."""

    @staticmethod
    def all_finite(n: int, x: NDArray[np.float32], /) -> bool: ...
    @staticmethod
    def accumulate(
        n: int,
        gradient: NDArray[np.float32],
        velocity: NDArray[np.float32] | None,
        residual: NDArray[np.float32],
        momentum: float,
        nesterov: bool,
        /,
    ) -> None: ...
    @staticmethod
    def accumulate_select(
        n: int,
        gradient: NDArray[np.float32],
        velocity: NDArray[np.float32] | None,
        residual: NDArray[np.float32],
        momentum: float,
        nesterov: bool,
        threshold: float,
        capacity: int,
        indices: NDArray[np.uint32],
        values: NDArray[np.float32],
        /,
    ) -> int: ...
    @staticmethod
    def select(
        n: int,
        x: NDArray[np.float32],
        threshold: float,
        capacity: int,
        indices: NDArray[np.uint32],
        values: NDArray[np.float32],
        /,
    ) -> int: ...
    @staticmethod
    def select_chunks(
        n: int, x: NDArray[np.float32], keep: int, indices: NDArray[np.uint32], values: NDArray[np.float32], /
    ) -> int: ...
    @staticmethod
    def kth_magnitude(n: int, x: NDArray[np.float32], k: int, scratch: NDArray[np.float32], /) -> float: ...
    @staticmethod
    def update_residual(
        n: int,
        indices: NDArray[np.uint32],
        values: NDArray[np.float32],
        decoded: NDArray[np.float32],
        numel: int,
        residual: NDArray[np.float32],
        velocity: NDArray[np.float32] | None,
        /,
    ) -> int: ...
    @staticmethod
    def scatter_add(
        n: int,
        indices: NDArray[np.uint32],
        values: NDArray[np.float32],
        scale: float,
        numel: int,
        out: NDArray[np.float32],
        /,
    ) -> int: ...
    @staticmethod
    def add_scaled(n: int, values: NDArray[np.float32], scale: float, out: NDArray[np.float32], /) -> None: ...
    @staticmethod
    def sum_magnitudes(n: int, values: NDArray[np.float32], /) -> float: ...
    @staticmethod
    def golomb_encode(n: int, indices: NDArray[np.uint32], numel: int, size: int, out: NDArray[np.uint8], /) -> int: ...
    @staticmethod
    def golomb_decode(
        n: int, payload: NDArray[np.uint8], size: int, numel: int, indices: NDArray[np.uint32], /
    ) -> int: ...
    @staticmethod
    def interpolative_encode(
        n: int, indices: NDArray[np.uint32], numel: int, size: int, out: NDArray[np.uint8], /
    ) -> int: ...
    @staticmethod
    def interpolative_decode(
        n: int, payload: NDArray[np.uint8], size: int, numel: int, indices: NDArray[np.uint32], /
    ) -> int: ...
    @staticmethod
    def bitpack_encode(
        n: int, indices: NDArray[np.uint32], numel: int, size: int, out: NDArray[np.uint8], /
    ) -> int: ...
    @staticmethod
    def bitpack_decode(
        n: int, payload: NDArray[np.uint8], size: int, numel: int, indices: NDArray[np.uint32], /
    ) -> int: ...
    @staticmethod
    def bitmap_encode(n: int, indices: NDArray[np.uint32], numel: int, size: int, out: NDArray[np.uint8], /) -> int: ...
    @staticmethod
    def bitmap_decode(
        n: int, payload: NDArray[np.uint8], size: int, numel: int, indices: NDArray[np.uint32], /
    ) -> int: ...
    @staticmethod
    def elias_fano_encode(
        n: int, indices: NDArray[np.uint32], numel: int, size: int, out: NDArray[np.uint8], /
    ) -> int: ...
    @staticmethod
    def elias_fano_decode(
        n: int, payload: NDArray[np.uint8], size: int, numel: int, indices: NDArray[np.uint32], /
    ) -> int: ...
    @staticmethod
    def block16_encode(
        n: int, indices: NDArray[np.uint32], numel: int, size: int, out: NDArray[np.uint8], /
    ) -> int: ...
    @staticmethod
    def block16_decode(
        n: int, payload: NDArray[np.uint8], size: int, numel: int, indices: NDArray[np.uint32], /
    ) -> int: ...
    @staticmethod
    def golomb_size(n: int, indices: NDArray[np.uint32], numel: int, /) -> int: ...
    @staticmethod
    def interpolative_size(n: int, indices: NDArray[np.uint32], numel: int, /) -> int: ...
    @staticmethod
    def bitpack_size(n: int, indices: NDArray[np.uint32], /) -> int: ...
    @staticmethod
    def block16_size(n: int, indices: NDArray[np.uint32], /) -> int: ...
    @staticmethod
    def float16_encode(
        n: int, values: NDArray[np.float32], out: NDArray[np.uint16], decoded: NDArray[np.float32], /
    ) -> float: ...
    @staticmethod
    def float16_decode(n: int, payload: NDArray[np.uint16], scale: float, values: NDArray[np.float32], /) -> int: ...
    @staticmethod
    def sign_encode(
        n: int, values: NDArray[np.float32], out: NDArray[np.uint8], decoded: NDArray[np.float32], /
    ) -> float: ...
    @staticmethod
    def sign_decode(n: int, payload: NDArray[np.uint8], scale: float, values: NDArray[np.float32], /) -> int: ...
    @staticmethod
    def bfloat16_encode(
        n: int, values: NDArray[np.float32], out: NDArray[np.uint16], decoded: NDArray[np.float32], /
    ) -> float: ...
    @staticmethod
    def bfloat16_decode(n: int, payload: NDArray[np.uint16], values: NDArray[np.float32], /) -> int: ...
    @staticmethod
    def levels_encode(
        n: int, values: NDArray[np.float32], bits: int, out: NDArray[np.uint8], decoded: NDArray[np.float32], /
    ) -> float: ...
    @staticmethod
    def levels_decode(
        n: int, payload: NDArray[np.uint8], bits: int, scale: float, values: NDArray[np.float32], /
    ) -> int: ...
    @staticmethod
    def quantize_encode(
        n: int,
        values: NDArray[np.float32],
        scheme: int,
        scale: float,
        key: int,
        out: NDArray[np.uint8],
        decoded: NDArray[np.float32],
        /,
    ) -> float: ...
    @staticmethod
    def quantize_decode(
        n: int, payload: NDArray[np.uint8], scheme: int, scale: float, values: NDArray[np.float32], /
    ) -> int: ...
    @staticmethod
    def float32_to_bfloat16(n: int, x: NDArray[np.float32], out: NDArray[np.uint16], /) -> None: ...
    @staticmethod
    def bfloat16_to_float32(n: int, x: NDArray[np.uint16], out: NDArray[np.float32], /) -> None: ...
    @staticmethod
    def float16_to_float32(n: int, x: NDArray[np.uint16], out: NDArray[np.float32], /) -> None: ...
    @staticmethod
    def float32_to_float16(n: int, x: NDArray[np.float32], out: NDArray[np.uint16], /) -> None: ...
    @staticmethod
    def skinny_right(
        n: int,
        matrix: NDArray[np.float32],
        rows: int,
        columns: int,
        rank: int,
        factor: NDArray[np.float32],
        out: NDArray[np.float32],
        /,
    ) -> None: ...
    @staticmethod
    def skinny_left(
        n: int,
        matrix: NDArray[np.float32],
        rows: int,
        columns: int,
        rank: int,
        factor: NDArray[np.float32],
        out: NDArray[np.float32],
        /,
    ) -> None: ...
    @staticmethod
    def skinny_outer(
        n: int,
        left: NDArray[np.float32],
        right: NDArray[np.float32],
        rows: int,
        columns: int,
        rank: int,
        residual: NDArray[np.float32],
        out: NDArray[np.float32],
        /,
    ) -> None: ...
    @staticmethod
    def orthonormalise(n: int, factor: NDArray[np.float32], rows: int, rank: int, /) -> None: ...

scalar: Table
avx2: Table
avx512: Table

def supported() -> tuple[str, ...]:
    """Names of the tables that this processor can run, the best one last."""
