"""A submitted operation, seen by its caller."""

from __future__ import annotations

from _thread import LockType, allocate_lock
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from types import FunctionType
from typing import Any


class Handle:
    """What ``submit`` returns: the promise of one operation's result.

    name
        The operation's (tensor's) name.
    """

    def __init__(self, name: str, waiting: Callable[[int], None] = lambda change: None) -> None:
        """``waiting`` is told +1 when a caller starts to wait and -1 when it stops, so that the engine can hurry."""
        self.name = name
        self._waiting = waiting
        self._finished = False
        # Locks that are taken and that the engine releases, one for each wait: half the price of an Event.
        self._gates: list[LockType] = []
        self._result: Any = None
        self._error: BaseException | None = None
        self._callbacks: deque[Callable[[], None]] = deque()

    def done(self) -> bool:
        """Return whether a result or an error is there; never blocks."""
        return self._finished

    def wait(self, timeout: float | None = None) -> Any:
        """Wait for the operation and return its result. May be called again, and from several threads.

        ``timeout`` is in seconds; None leaves the deadline to the engine's stall check. Raises TimeoutError naming the
        tensor once it has passed (the operation goes on), or the operation's own error: a new exception at each call.
        """
        if not self._finished:
            gate = allocate_lock()
            gate.acquire()
            self._gates.append(gate)
            self._waiting(1)
            try:
                # The engine may have come between the first look and the gate.
                arrived = self._finished or gate.acquire(timeout=-1 if timeout is None else max(timeout, 0))
            finally:
                self._waiting(-1)
            if not arrived:
                self._gates.remove(gate)
                raise TimeoutError(
                    f"Tensor '{self.name}': no result within {timeout:g} s. The operation goes on; wait again, or see "
                    f"whether every rank has submitted it."
                )
        if self._error is not None:
            # The engine's own traceback shows where it happened; without one there is nothing to chain.
            raise renewed(self._error) from (self._error if self._error.__traceback__ is not None else None)
        return self._result

    def call_when_done(self, callback: Callable[[], None]) -> None:
        """Call ``callback()`` once there is an outcome: in the engine's thread, or now. It must be short and not raise."""
        self._callbacks.append(callback)
        if self._finished:
            self._call()

    def expect(self) -> None:
        """Tell that somebody waits for it, but not in ``wait``, so that the engine hurries all the same."""
        self._waiting(1)
        self.call_when_done(lambda: self._waiting(-1))

    def finish(self, result: Any = None, error: BaseException | None = None) -> None:
        """Set the outcome and release the waiting callers; called once, by the engine."""
        self._result, self._error = result, error
        self._finished = True
        for gate in list(self._gates):
            gate.release()
        if self._callbacks:
            self._call()

    def _call(self) -> None:
        # Two threads may come here at once; each callback is popped, and so called, by one of them.
        while self._callbacks:
            try:
                callback = self._callbacks.popleft()
            except IndexError:
                return
            callback()


def renewed(error: BaseException) -> BaseException:
    """Return an equal exception without traceback or context.

    An exception object that is raised twice, or in two threads, collects the traces of all of them. (One that can't be
    copied is cleaned instead.)
    """
    kind = type(error)
    if not isinstance(kind.__init__, FunctionType):
        return kind(*error.args)
    # An __init__ in Python may take other arguments than ``args``: restore the state without calling it. With several
    # built-in bases only the one that lays out the object may make it; the others refuse with TypeError.
    for base in kind.__mro__:
        if "__new__" in vars(base):
            with suppress(TypeError):
                copy: BaseException = base.__new__(kind, *error.args)
                copy.args = error.args
                copy.__dict__.update(error.__dict__)
                return copy
    return error.with_traceback(None)
