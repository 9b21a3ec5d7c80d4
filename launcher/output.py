"""Turns the bytes of the ranks into whole lines with a prefix, and shows progress lines in place.

A line that ends in a carriage return is progress. On a terminal it is overwritten in place; elsewhere it becomes an
ordinary line, at most one every ten seconds for each stream.
"""

from __future__ import annotations

import shutil
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

PROGRESS_SECONDS = 10.0
LINE_BYTES = 1 << 20
"""Longest line that is waited for; a longer one is shown in pieces."""
RECENT_LINES = 400
_COLOURS = (36, 33, 32, 35, 34, 31)
_ERASE = b"\r\x1b[K"


class Sink(Protocol):
    """An unbuffered binary output stream."""

    def write(self, data: bytes, /) -> int | None:
        """Write some of ``data``; returns how many bytes, None where none could be taken now."""

    def isatty(self) -> bool:
        """Return whether this is a terminal."""


class Screen:
    """The launcher's stdout and stderr; whole lines go out, and at most one progress line stays at the bottom.

    ``stdout`` and ``stderr`` are unbuffered. ``colour`` is for terminals; ``clock`` gives seconds and ``columns`` the
    terminal's width. ``broken`` becomes True when a reader of the output has gone away.
    """

    def __init__(
        self,
        stdout: Sink,
        stderr: Sink,
        *,
        colour: bool = True,
        clock: Callable[[], float] = time.monotonic,
        columns: Callable[[], int] = lambda: shutil.get_terminal_size().columns,
    ) -> None:
        self.stdout, self.stderr, self.clock = stdout, stderr, clock
        self.in_place = stderr.isatty()
        self._colour, self._columns = colour, columns
        self._bottom = b""
        self._recent: deque[bytes] = deque(maxlen=RECENT_LINES)
        self._dead: list[Sink] = []
        self.broken = False

    def prefix(self, label: str, number: int, stream: Sink) -> bytes:
        """Return ``[label] ``, coloured by ``number`` where the stream is a terminal."""
        if self._colour and stream.isatty():
            return f"\x1b[{_COLOURS[number % len(_COLOURS)]}m[{label}]\x1b[0m ".encode()
        return f"[{label}] ".encode()

    def line(self, text: bytes, stream: Sink) -> None:
        """Write one line (without its newline), above the progress line."""
        if self._bottom:
            self._write(self.stderr, _ERASE)
        self._write(stream, text + b"\n")
        self._recent.append(text)
        if self._bottom:
            self._write(self.stderr, self._bottom)

    def show_last(self, lines: list[bytes]) -> None:
        """Write ``lines`` to stderr, unless they are what came last anyhow (up to 400 lines are remembered)."""
        if list(self._recent)[-len(lines) :] != lines:
            for text in lines:
                self.line(text, self.stderr)

    def progress(self, label: str, number: int, text: bytes) -> None:
        """Show ``text`` in place at the bottom of the terminal, cut to its width."""
        room = max(0, self._columns() - len(label) - 4)
        shown = text.decode(errors="replace")[:room].encode()
        self._bottom = self.prefix(label, number, self.stderr) + shown
        self._write(self.stderr, _ERASE + self._bottom)

    def end_progress(self) -> None:
        """Take the progress line away."""
        if self._bottom:
            self._write(self.stderr, _ERASE)
        self._bottom = b""

    def say(self, text: str) -> None:
        """Write a line of the launcher itself to stderr."""
        self.line(self.spoken(text), self.stderr)

    @staticmethod
    def spoken(text: str) -> bytes:
        """Return ``text`` as a line of the launcher itself."""
        return f"sparse-ring-run: {text}".encode()

    def _write(self, stream: Sink, data: bytes) -> None:
        """Write all of ``data`` to an unbuffered stream; what nobody reads any more is dropped and ``broken`` set."""
        if stream in self._dead:
            return
        try:
            while data:
                written = stream.write(data)
                if not written:
                    # The shell may have left its terminal non-blocking.
                    time.sleep(0.01)
                data = data[written or 0 :]
        except OSError:
            self._dead.append(stream)
            self.broken = True


class Lines:
    """Splits one stream of one rank into lines and writes them to the screen; ``notice`` sees each of them as well."""

    def __init__(
        self,
        screen: Screen,
        stream: Sink,
        label: str,
        number: int = 0,
        *,
        notice: Callable[[bytes], object] = lambda line: None,
    ) -> None:
        self._notice = notice
        self._screen, self._stream, self._label, self._number = screen, stream, label, number
        self._buffer = b""
        self._progress: bytes | None = None
        self._shown_at: float | None = None

    def feed(self, data: bytes) -> None:
        """Take the next bytes and write every line that they complete."""
        self._buffer += data
        while self._buffer:
            end = min((at for at in (self._buffer.find(b"\n"), self._buffer.find(b"\r")) if at >= 0), default=-1)
            if end < 0:
                if len(self._buffer) < LINE_BYTES:
                    return
                end = LINE_BYTES
                text, self._buffer = self._buffer[:end], self._buffer[end:]
                self._line(text)
                continue
            text, mark = self._buffer[:end], self._buffer[end : end + 2]
            self._buffer = self._buffer[end + (2 if mark == b"\r\n" else 1) :]
            if mark[:1] == b"\n" or mark == b"\r\n":
                # A newline right after a progress line makes that line stay, as it would on a terminal.
                self._line(text or self._progress or b"")
            elif text:
                self._show(text)

    def close(self) -> None:
        """Write what is left without a newline."""
        if self._buffer:
            self._line(self._buffer)
        self._buffer = b""

    def _line(self, text: bytes) -> None:
        self._notice(text)
        if self._progress is not None:
            self._screen.end_progress()
            self._progress = None
        self._screen.line(self._screen.prefix(self._label, self._number, self._stream) + text, self._stream)

    def _show(self, text: bytes) -> None:
        if self._screen.in_place:
            self._progress = text
            self._screen.progress(self._label, self._number, text)
            return
        now = self._screen.clock()
        if self._shown_at is None or now - self._shown_at >= PROGRESS_SECONDS:
            self._shown_at, self._progress = now, None
            self._screen.line(self._screen.prefix(self._label, self._number, self._stream) + text, self._stream)
        else:
            self._progress = text


class MpiLines(Lines):
    """The lines of mpiexec itself: kept in ``kept``, and shown as they come only where ``verbose``."""

    def __init__(self, screen: Screen, kept: deque[bytes], *, verbose: bool) -> None:
        super().__init__(screen, screen.stderr, "mpi")
        self._kept, self._verbose = kept, verbose

    def _line(self, text: bytes) -> None:
        self._kept.append(text)
        if self._verbose:
            super()._line(text)
