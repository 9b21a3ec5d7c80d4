"""The store of the script's default process group, for as long as ranks need it to find each other."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch.distributed as dist


class BorrowedStore(dist.Store):  # type: ignore[name-defined,misc]
    """Passes everything on to another store until it is given back.

    gloo holds the store of a group as long as the group lives. Were that the script's own, destroying its default group would
    not close it, and the next group at the same port would find the old one's keys and connect to nobody.
    """

    def __init__(self, lender: Any) -> None:
        super().__init__()
        self._lender = lender

    def give_back(self) -> None:
        """Keep no reference to the other store."""
        self._lender = None

    def set(self, key: str, value: Any) -> None:
        """As torch's, like all that follow: RuntimeError once the store was given back."""
        self._store.set(key, value)

    def get(self, key: str) -> bytes:
        """The key's value; waits until there is one."""
        return bytes(self._store.get(key))

    def add(self, key: str, value: int) -> int:
        """Count up and return the sum."""
        return int(self._store.add(key, value))

    def check(self, keys: list[str]) -> bool:
        """Whether all keys have values."""
        return bool(self._store.check(keys))

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Wait until all keys have values."""
        if timeout is None:
            self._store.wait(keys)
        else:
            self._store.wait(keys, timeout)

    def compare_set(self, key: str, expected_value: str, desired_value: str) -> bytes:
        """Set a value where the old one is as expected; returns the value."""
        return bytes(self._store.compare_set(key, expected_value, desired_value))

    def delete_key(self, key: str) -> bool:
        """Forget a key; returns whether it had a value."""
        return bool(self._store.delete_key(key))

    @property
    def _store(self) -> Any:
        if self._lender is None:
            raise RuntimeError("the store of the default process group was given back once all ranks were connected")
        return self._lender
