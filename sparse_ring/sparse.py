"""The value that every stage of the pipeline passes on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class SparseGradient:
    """The kept elements of one parameter's gradient.

    indices
        ``uint32[count]``, strictly increasing positions in C order of the logical shape, each ``< numel``.
    values
        ``float32[count]``, the element at each position.
    numel
        Number of elements of the dense gradient, below 2**32.

    Both arrays may be views of a scratch buffer that the next parameter overwrites: whoever keeps a
    SparseGradient longer copies it.
    """

    indices: NDArray[np.uint32]
    values: NDArray[np.float32]
    numel: int

    @property
    def count(self) -> int:
        """Number of kept elements."""
        return len(self.indices)

    @property
    def density(self) -> float:
        """kept / total, 0 for an empty parameter."""
        return self.count / self.numel if self.numel else 0.0

    def to_dense(self) -> NDArray[np.float32]:
        """Return the dense gradient, ``float32[numel]``, zero where nothing was kept."""
        dense = np.zeros(self.numel, dtype=np.float32)
        dense[self.indices] = self.values
        return dense
