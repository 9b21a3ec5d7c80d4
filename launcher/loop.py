"""The launcher's one thread: file descriptors with callbacks, and signals that wake it."""

from __future__ import annotations

import selectors
import signal
import socket
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Loop:
    """A selector that also wakes for signals; as a context manager it installs handlers and puts the old ones back.

    SIGHUP stays ignored where it was (nohup).
    """

    def __init__(self) -> None:
        self._signals: list[int] = []
        self._selector = selectors.DefaultSelector()
        self._wake = socket.socketpair()
        for end in self._wake:
            end.setblocking(False)
        self._old_handlers: dict[int, Any] = {}
        self._old_wakeup = -1

    def __enter__(self) -> Loop:
        self.add(self._wake[0], lambda: self._wake[0].recv(4096))
        self._old_wakeup = signal.set_wakeup_fd(self._wake[1].fileno(), warn_on_full_buffer=False)
        for signum in (*ENDING_SIGNALS, signal.SIGCHLD):
            old = signal.getsignal(signum)
            if signum == signal.SIGHUP and old == signal.SIG_IGN:
                continue
            self._old_handlers[signum] = signal.signal(signum, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for signum, handler in self._old_handlers.items():
            signal.signal(signum, handler)
        signal.set_wakeup_fd(self._old_wakeup)
        self._selector.close()
        for end in self._wake:
            end.close()

    def _note(self, signum: int, _: FrameType | None) -> None:
        if signum != signal.SIGCHLD:
            self._signals.append(signum)

    def add(self, file: int | socket.socket, callback: Callable[[], object]) -> None:
        """Call ``callback`` whenever ``file`` can be read."""
        self._selector.register(file, selectors.EVENT_READ, callback)

    def remove(self, file: int | socket.socket) -> None:
        """Forget ``file``; it is not closed."""
        self._selector.unregister(file)

    def take_signals(self) -> list[int]:
        """Return the signals that came since the last call, in order of arrival."""
        taken, self._signals = self._signals, []
        return taken

    def step(self, seconds: float) -> None:
        """Wait until something happens, at most ``seconds``, and call what waits for it."""
        for key, _ in self._selector.select(seconds):
            key.data()
