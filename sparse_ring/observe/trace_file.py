"""A file of Chrome trace events (a JSON array, one event a line) that is valid JSON after every write.

Each write starts on the closing bracket of the one before and ends with a new one. A process that is killed between two
writes leaves a whole array. Where it is killed inside one, the last line may be torn: ``read_events`` leaves that out, and
viewers of traces do so as well.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Event = Mapping[str, Any]

END = b"\n]\n"


class TraceFile:
    """Appends events to a new file; raises OSError where that fails, and then leaves the array as it was before.

    path
        An older file of this name is replaced.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._encode = json.JSONEncoder(separators=(",", ":")).encode
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        self._tail = 0
        try:
            self._tail = self._write(b"[", 0)
            self._write(END, self._tail)
        except OSError:
            os.close(self._file)
            raise
        self._separator = b"\n"

    def append(self, events: Sequence[Event]) -> None:
        """Add events; afterwards the file holds all of them and is a whole array."""
        if not events:
            return
        data = self._separator + ",\n".join(self._encode(event) for event in events).encode()
        try:
            self._write(data + END, self._tail)
        except OSError:
            # The bracket's own bytes were there before, so that a full disk has room for it.
            os.pwrite(self._file, END, self._tail)
            os.ftruncate(self._file, self._tail + len(END))
            raise
        self._tail += len(data)
        self._separator = b",\n"

    def close(self) -> None:
        """Close the file; nothing is left to write."""
        os.close(self._file)

    def _write(self, data: bytes, offset: int) -> int:
        view = memoryview(data)
        while view:
            written = os.pwrite(self._file, view, offset)
            view, offset = view[written:], offset + written
        return offset


def event_lines(path: str | Path) -> Iterator[str]:
    """Yield the lines of a trace that are whole events, without separators; a torn last line is left out."""
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            text = line.strip().rstrip(",")
            if text not in ("", "[", "]") and _is_event(text):
                yield text


def read_events(path: str | Path) -> list[dict[str, Any]]:
    """Return the events of a trace file, also of one whose writer was killed."""
    return [json.loads(text) for text in event_lines(path)]


def _is_event(text: str) -> bool:
    if not (text.startswith("{") and text.endswith("}")):
        return False
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
