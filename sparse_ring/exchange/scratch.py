"""Memory that an exchange uses again in each call."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class Scratch:
    """A growable run of bytes; asking again gives the same memory, so what was there before is void."""

    def __init__(self) -> None:
        self._bytes = np.empty(0, dtype=np.uint8)

    def take(self, nbytes: int) -> NDArray[np.uint8]:
        """Return ``uint8[nbytes]``, contents undefined. Valid until the next ``take``."""
        if len(self._bytes) < nbytes:
            # Growing by an eighth more keeps slowly rising sizes (compressed messages) from allocating each time.
            self._bytes = np.empty(nbytes + nbytes // 8, dtype=np.uint8)
        return self._bytes[:nbytes]
