"""Signals that end a program: put off while a lab is built or taken away, and turned into exceptions in between."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def in_main_thread() -> bool:
    """Return whether this thread is the one that may handle signals and is interrupted by them."""
    return threading.current_thread() is threading.main_thread()


@contextlib.contextmanager
def put_off() -> Iterator[None]:
    """Keep signals from interrupting the block; the first that came is raised at its end."""
    if not in_main_thread():
        yield
        return
    arrived: list[int] = []
    # One that is ignored (nohup) stays so.
    wanted = [number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, lambda number, _: arrived.append(number)) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if arrived:
            signal.raise_signal(arrived[0])


@contextlib.contextmanager
def as_exceptions() -> Iterator[None]:
    """Let SIGTERM and SIGHUP, where they would end this process at once, raise SystemExit, as SIGINT raises its own."""
    if not in_main_thread():
        yield
        return

    def leave(number: int, _: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    changed = [number for number in ENDING if signal.getsignal(number) is signal.SIG_DFL]
    for number in changed:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in changed:
            signal.signal(number, signal.SIG_DFL)
