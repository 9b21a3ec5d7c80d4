"""What the kernel is asked about processes: who descends from whom, and who dies with whom.

Linux only in part: elsewhere :func:`descendants` finds nothing and the two ``prctl`` requests do nothing, so that the
sockets and pipes alone hold the tree together.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def adopt_orphans() -> None:
    """Make this process the parent of every descendant whose parent ends, so that none escapes."""
    if _libc is not None:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def dying_with(parent: int) -> Callable[[], None]:
    """Return what a child calls between fork and exec to be killed when the process ``parent`` ends."""

    def prepare() -> None:
        if _libc is not None:
            _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
            if os.getppid() != parent:
                os._exit(128 + signal.SIGKILL)

    return prepare


def descendants(root: int) -> list[int]:
    """Return the pids of all live processes below ``root``, zombies left out."""
    children: dict[int, list[int]] = {}
    alive: set[int] = set()
    for name in os.listdir("/proc") if _libc is not None else []:
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except OSError:
            continue
        children.setdefault(int(parent), []).append(int(name))
        if state not in (b"Z", b"X"):
            alive.add(int(name))
    found, queue = [], [root]
    while queue:
        below = children.get(queue.pop(), [])
        queue += below
        found += [pid for pid in below if pid in alive]
    return found


def send(pids: list[int], signum: int) -> None:
    """Signal every process of the list that still exists."""
    for pid in pids:
        try:
            os.kill(pid, signum)
        except (ProcessLookupError, PermissionError):
            continue


def describe(status: int) -> str:
    """Say how a process ended; ``status`` as subprocess gives it (negative: the signal)."""
    if status >= 0:
        return f"ended with exit code {status}"
    try:
        name = f" ({signal.Signals(-status).name})"
    except ValueError:
        name = ""
    return f"was killed by signal {-status}{name}"


def exit_code(status: int) -> int:
    """Return a shell's exit code for ``status``: 128 + signal where it is negative."""
    return status if status >= 0 else 128 - status
