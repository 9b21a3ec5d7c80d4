"""A process's part in a launched job, from ``init()`` to ``shutdown()``: whoever dies in between ends the job."""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

# Between an uncaught exception's traceback and the abort: enough for a launcher to forward the text.
GRACE_SECONDS = 0.25


class Membership:
    """Watches over this process once it has begun to join.

    member_file
        Exists while this process is a member, by which ``sparse-ring-run`` sees whether it left before it ended; empty:
        nobody looks.
    abort
        Ends the whole job; does nothing where this process is the only one.
    """

    def __init__(self, member_file: str, abort: Callable[[int], None]) -> None:
        self._file = Path(member_file) if member_file else None
        self._abort = abort
        self._previous_hook = sys.excepthook
        self._hook = self._uncaught
        self._process = os.getpid()
        # What must be closed before the process is ended; set by whoever opens it.
        self.closing: Callable[[], None] = lambda: None

    def join(self) -> None:
        """Begin: before anything that other ranks may wait for."""
        if self._file is not None:
            self._file.touch()
        self._previous_hook, sys.excepthook = sys.excepthook, self._hook

    def leave(self) -> None:
        """End, after goodbye."""
        if sys.excepthook == self._hook:
            sys.excepthook = self._previous_hook
        if self._file is not None:
            self._file.unlink(missing_ok=True)

    def _uncaught(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        self._previous_hook(kind, error, trace)
        if isinstance(sys.stderr, io.StringIO) and sys.__stderr__ is not None:
            # torch.distributed's hook collects what this one prints, to print it afterwards; but this one may not return.
            sys.__stderr__.write(sys.stderr.getvalue())
            sys.__stderr__.flush()
            sys.stderr.truncate(0)
        sys.stdout.flush()
        sys.stderr.flush()
        # An interactive prompt goes on after an error, and so may the job; a forked child is not a member.
        if hasattr(sys, "ps1") or os.getpid() != self._process:
            return
        self.closing()
        if self._file is not None:
            # sparse-ring-run ends the others in order; MPI's abort would only add its own messages.
            self._file.write_text(f"{kind.__name__}: {error}")
            os._exit(1)
        # The abort ends the launcher's forwarding too, and would swallow the end of the traceback.
        time.sleep(GRACE_SECONDS)
        self._abort(1)
