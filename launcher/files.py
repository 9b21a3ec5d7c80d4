"""Copies of the ranks' output in files: ``--output-filename DIR`` writes ``DIR/rank.N/stdout`` and ``stderr``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from sparse_ring.errors import SparseRingError


class Reader(Protocol):
    """Takes the bytes of one stream."""

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""

    def close(self) -> None:
        """The stream is over."""


class OutputFiles:
    """Makes the files below ``folder``; ``say`` is told once when one cannot be written any more.

    Raises SparseRingError where the folder cannot be made.
    """

    def __init__(self, folder: str, say: Callable[[str], object]) -> None:
        self._folder, self._say = Path(folder), say
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SparseRingError(f"--output-filename {folder}: the folder cannot be made ({error}).") from None

    def copying(self, rank: int, stream: str, reader: Reader) -> Reader:
        """Return a reader that writes what ``reader`` gets into ``rank.N/stream`` as well, as it comes."""
        return _Copy(self._folder / f"rank.{rank}" / stream, reader, self._failed)

    def _failed(self, path: Path, error: OSError) -> None:
        self._say(f"{path} cannot be written ({error.strerror}); the ranks go on without it")


class _Copy:
    def __init__(self, path: Path, reader: Reader, failed: Callable[[Path, OSError], object]) -> None:
        self._path, self._reader, self._failed = path, reader, failed
        self._file = None
        try:
            path.parent.mkdir(exist_ok=True)
            self._file = path.open("wb", buffering=0)
        except OSError as error:
            failed(path, error)

    def feed(self, data: bytes) -> None:
        if self._file is not None:
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[self._file.write(rest) or 0 :]
            except OSError as error:
                self._file.close()
                self._file = None
                self._failed(self._path, error)
        self._reader.feed(data)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._reader.close()
