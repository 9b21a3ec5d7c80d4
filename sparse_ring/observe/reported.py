"""The loss and other numbers that a training loop tells: shown in the progress line, kept in the records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import SupportsFloat


class Reported:
    """The last value under each name.

    Values become numbers only where one is shown or recorded: a loss on a GPU is not waited for at each step.
    """

    def __init__(self) -> None:
        self._latest: dict[str, SupportsFloat] = {}
        self._fresh: dict[str, SupportsFloat] = {}

    def update(self, values: Mapping[str, SupportsFloat]) -> None:
        """Take the place of what was reported under the same names."""
        self._latest.update(values)
        self._fresh.update(values)

    @property
    def loss(self) -> SupportsFloat | None:
        """The last value named ``loss``; None where there was none."""
        return self._latest.get("loss")

    def take(self) -> dict[str, float]:
        """Return what was reported since the last call."""
        fresh, self._fresh = self._fresh, {}
        return {name: float(value) for name, value in fresh.items()}
