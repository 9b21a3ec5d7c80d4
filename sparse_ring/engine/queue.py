"""Where callers' threads and the engine's thread meet: what was submitted, what is open, and when a round is useful."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from sparse_ring.engine.handle import Handle
from sparse_ring.engine.operation import Operation
from sparse_ring.engine.patience import LONGEST_SLEEP_SECONDS, pause_seconds
from sparse_ring.errors import MessageError, NotInitializedError, RankLostError, SparseRingError

# What is not worth a round goes after this time all the same: somebody may poll for it.
LONGEST_HOLD_SECONDS = 0.05
# How long another rank may have to wait before this one, whose callers do not wait yet, joins its round.
LISTENING_SECONDS = 0.004


@dataclass(slots=True, eq=False)
class Submitted:
    """An operation of this rank from its submission to its result; times are of ``time.monotonic``."""

    operation: Operation
    handle: Handle
    fusable: bool
    since: float = field(default_factory=time.monotonic)
    reported: float = 0.0

    @property
    def name(self) -> str:
        """The operation's name."""
        return self.operation.request.name


class Turn(Enum):
    """What the engine's thread shall do next."""

    ROUND = "tell the other ranks what is new"
    PREPARE = "do what needs no other rank"
    LISTEN = "see whether another rank has something to tell"
    LAST = "say goodbye"


class Queue:
    """The open operations of one rank, by name; those not yet told to the other ranks, in order.

    ``fusion_threshold`` is in bytes. ``worth_sending`` tells from the bytes of what may be fused whether a bucket waits for
    ``cycle_seconds`` only, or longer for more. All methods may be called from any thread, but ``next_turn`` and ``take``.
    """

    def __init__(
        self,
        rank: int,
        fusion_threshold: int,
        cycle_seconds: float,
        worth_sending: Callable[[int], bool] = lambda nbytes: True,
    ) -> None:
        self.fusion_threshold = fusion_threshold
        self._rank, self._cycle_seconds, self._worth_sending = rank, cycle_seconds, worth_sending
        # Reentrant: a signal handler or finalizer may call in while its own thread holds the lock.
        self._lock = threading.RLock()
        self._wake = threading.Condition(self._lock)
        self._open: dict[str, Submitted] = {}
        self._unsent: deque[Submitted] = deque()
        self._unprepared: deque[Operation] = deque()
        self._unsent_bytes = 0
        self._unsent_fusable = 0
        self._leftover = False
        self._collecting = False
        self._callers_waiting = 0
        self._quiet_since = 0.0
        self._closing = False
        self._lost_rank: int | None = None
        self._failure: BaseException | None = None

    @property
    def failure(self) -> BaseException | None:
        """Why the engine has stopped; None while it works."""
        return self._failure

    def caller_waits(self) -> bool:
        """Return whether a thread of this rank waits for a handle."""
        return self._callers_waiting > 0

    def put(self, operations: Sequence[Operation]) -> list[Handle]:
        """Take operations at once; see ``Engine.submit_all``."""
        now, waiting = time.monotonic(), self._count_waiting
        entries = [
            Submitted(operation, Handle(operation.request.name, waiting), operation.fusion_key is not None, now)
            for operation in operations
        ]
        with self._lock:
            self._check(entries)
            lost_rank = self._lost_rank
            if lost_rank is None and entries:
                self._unsent.extend(entries)
                for entry in entries:
                    operation = entry.operation
                    self._open[operation.request.name] = entry
                    self._unsent_bytes += operation.nbytes
                    self._unsent_fusable += entry.fusable
                    if operation.prepares:
                        self._unprepared.append(operation)
                if not self._collecting or self._hurry():
                    self._wake.notify()
        if lost_rank is not None:
            for entry in entries:
                entry.handle.finish(error=RankLostError(lost_rank, entry.name))
        return [entry.handle for entry in entries]

    def next_turn(self) -> Turn:
        """Sleep until there is something to do, or for one poll interval while only other ranks can go on.

        Raises the failure once there is one.
        """
        with self._lock:
            while True:
                if self._failure is not None:
                    raise self._failure
                if self._closing:
                    return Turn.LAST
                if self._unprepared and self._open:
                    return Turn.PREPARE
                if self._unsent:
                    left = self._unsent[0].since + self._patience() - time.monotonic()
                    if left <= 0 or self._hurry():
                        self._quiet_since = 0.0
                        return Turn.ROUND
                    self._collecting = True
                    woken = self._wake.wait(min(left, LISTENING_SECONDS))
                    self._collecting = False
                    if not woken and left > LISTENING_SECONDS:
                        return Turn.LISTEN
                elif not self._open:
                    self._unprepared.clear()
                    self._wake.wait()
                    self._quiet_since = 0.0
                else:
                    now = time.monotonic()
                    self._quiet_since = self._quiet_since or now
                    hurry = self.caller_waits()
                    longest = LONGEST_SLEEP_SECONDS if hurry else LISTENING_SECONDS
                    self._wake.wait(pause_seconds(now - self._quiet_since, hurry, longest))
                    if not (self._unsent or self._closing or self._failure):
                        return Turn.LISTEN

    def unprepared(self) -> Operation:
        """Return the next operation to prepare; after ``Turn.PREPARE``."""
        return self._unprepared.popleft()

    def take(self, accept: Callable[[Submitted], bool]) -> None:
        """Offer the unsent operations in order; those before the first refusal count as sent."""
        sent_bytes = sent_fusable = 0
        while self._unsent and accept(self._unsent[0]):
            entry = self._unsent.popleft()
            sent_bytes += entry.operation.nbytes
            sent_fusable += entry.fusable
        with self._lock:
            self._unsent_bytes -= sent_bytes
            self._unsent_fusable -= sent_fusable
            self._leftover = bool(self._unsent)
            self._quiet_since = 0.0

    def open_operations(self) -> list[Submitted]:
        """Return what is in flight, oldest first."""
        with self._lock:
            return list(self._open.values())

    def find(self, name: str) -> Submitted | None:
        """Return the operation in flight under a name."""
        return self._open.get(name)

    def finish(self, names: Sequence[str], results: Sequence[object]) -> None:
        """Set outcomes; an exception instance fails its handle. The names are free before the callers wake."""
        with self._lock:
            finished = [self._open.pop(name, None) for name in names]
        for submitted, result in zip(finished, results, strict=True):
            if submitted is None:
                continue
            if isinstance(result, BaseException):
                submitted.handle.finish(error=result)
            else:
                submitted.handle.finish(result)

    def close(self) -> None:
        """Refuse new operations and ask for the last turn."""
        with self._lock:
            self._closing = True
            self._wake.notify()

    def lose(self, rank: int) -> None:
        """Fail all open and later operations with RankLostError."""
        with self._lock:
            self._lost_rank = rank
        self.fail_open(lambda name: RankLostError(rank, name))

    def fail(self, cause: BaseException) -> None:
        """Fail all open and later operations, naming the cause; the first cause stays."""
        with self._lock:
            self._failure = self._failure or cause
            self._wake.notify()
        self.fail_open(self._stopped)

    def fail_open(self, error: Callable[[str], BaseException]) -> None:
        """Fail everything in flight, each with the error that is made from its name."""
        with self._lock:
            names = list(self._open)
            self._unsent.clear()
            self._unprepared.clear()
            self._unsent_bytes = self._unsent_fusable = 0
            self._leftover = False
        self.finish(names, [error(name) for name in names])

    def _patience(self) -> float:
        """Return how many seconds the oldest unsent operation waits for others to travel with."""
        if self._worth_sending(self._unsent_bytes):
            return self._cycle_seconds
        return max(self._cycle_seconds, LONGEST_HOLD_SECONDS)

    def _hurry(self) -> bool:
        """Return whether more operations are not worth waiting for."""
        return (
            self.caller_waits()
            or self._unsent_fusable == 0
            or self._unsent_bytes >= self.fusion_threshold
            or self._leftover
            or self._closing
            or self._failure is not None
        )

    def _count_waiting(self, change: int) -> None:
        with self._lock:
            self._callers_waiting += change
            if change > 0:
                self._wake.notify()

    def _stopped(self, name: str) -> BaseException:
        cause = self._failure
        if isinstance(cause, MessageError):
            return MessageError(cause.reason, rank=cause.rank, parameter=name)
        if isinstance(cause, RankLostError):
            return RankLostError(cause.rank, name, cause.what)
        return SparseRingError(f"Tensor '{name}': the engine of rank {self._rank} has stopped: {cause}")

    def _check(self, entries: Sequence[Submitted]) -> None:
        if self._failure is not None and entries:
            raise self._stopped(entries[0].name)
        if self._closing:
            raise NotInitializedError(f"The engine of rank {self._rank}")
        seen: set[str] = set()
        for entry in entries:
            name = entry.operation.request.name
            if name in self._open or name in seen:
                raise ValueError(
                    f"Tensor '{entry.name}' is still in flight on rank {self._rank}: wait for its handle before "
                    f"submitting it again, or give the second operation another name."
                )
            seen.add(name)
