"""One rank's part in a job: who it is, its engine, its exchanges; and the process's default session.

Everything takes its Session as an argument, so that ranks may be threads. The default, set by ``init()``, is the only
global.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

import torch

from sparse_ring.config import Config, member_file, torch_threads_chosen, transport_asked_for, unknown_settings
from sparse_ring.engine.engine import Engine
from sparse_ring.engine.handle import Handle
from sparse_ring.engine.operation import Operation
from sparse_ring.errors import NotInitializedError, SparseRingError
from sparse_ring.exchange.exchanges import Exchanges
from sparse_ring.identity import Identity, Placement, introduce
from sparse_ring.kernels.table import kernels_for
from sparse_ring.membership import Membership
from sparse_ring.observe.logs import configure_logging
from sparse_ring.observe.metrics import Metrics
from sparse_ring.observe.progress import Progress
from sparse_ring.observe.records import Records
from sparse_ring.observe.reported import Reported
from sparse_ring.observe.timeline import Timeline
from sparse_ring.recording import Recording
from sparse_ring.transport.base import Transport
from sparse_ring.transport.world import abort_world, open_world, start_world

logger = logging.getLogger(__name__)

FORKED = (
    "sparse_ring cannot be used in a forked process: only the process that called init() takes part in the job. "
    "Workers such as DataLoader's are fine as long as they do not call it."
)


class Session:
    """One rank of a job, from the handshake to ``close()``. Collective: all ranks of the transport make theirs.

    rank, size
        Of the job; ``local_rank``, ``local_size`` among the ranks on this host; ``cross_rank``, ``cross_size`` among
        the ranks that have this local rank on their hosts.
    config, kernels, metrics, engine, exchanges
        What operations work with.
    pending
        The operations in flight by number (``start``, ``finish``), and what makes the caller's results of theirs.
    timeline, recording
        Where spans go, and what starts and ends that.
    reported
        The loss and other numbers that the training loop has told.
    on_close
        Called with the session by ``close()``, while collectives still work.

    Raises SparseRingError on all ranks where versions of sparse_ring differ; a different CPU capability of torch is
    logged.
    """

    def __init__(self, transport: Transport, config: Config, identity: Identity | None = None) -> None:
        self.rank, self.size = transport.rank, transport.size
        self.config, self.metrics, self.timeline, self.reported = config, Metrics(), Timeline(), Reported()
        self.kernels = kernels_for(config.kernels)
        self.exchanges = Exchanges(self.kernels)
        self.on_close: list[Callable[[Session], None]] = []
        self.pending: dict[int, tuple[Sequence[Handle], Callable[[list[Any]], Any]]] = {}
        self._numbers = itertools.count(1)
        self._names: dict[str, itertools.count[int]] = {}
        self._process = os.getpid()
        self._closed = False
        self.engine = Engine(transport, config, self.metrics, self.timeline)
        self.recording = Recording(self.timeline, self.engine)
        try:
            identity = replace(identity or Identity.of_this_process(), timeline=config.timeline)
            everyone = introduce(identity, self.engine, self.exchanges)
            self._records = Records(self)
            if everyone[0].timeline:
                self.recording.start(everyone[0].timeline, config.timeline_mark_cycles)
        except BaseException:
            self._closed = True
            self.engine.close()
            raise
        self.placement = Placement.of(self.rank, everyone)
        self.local_rank, self.local_size = self.placement.local_rank, self.placement.local_size
        self.cross_rank, self.cross_size = self.placement.cross_rank, self.placement.cross_size
        self._progress = Progress(self)
        self.on_close += [self._progress.close, self._records.close]

    def step_done(self, warmed_up: bool, residual_norm: Callable[[], float]) -> None:
        """Count an optimizer step and tell those who watch.

        warmed_up
            The recipe's warm-up has ended with this step.
        residual_norm
            Called where the norm of this rank's residuals is wanted.
        """
        self.metrics.steps += 1
        self._progress.step(self.reported.loss)
        self._records.step(residual_norm)
        if warmed_up:
            self._progress.warmed_up()
            self._records.warmed_up(residual_norm)

    def submit(self, operation: Operation) -> Handle:
        """Hand an operation to the engine. Raises ValueError where one of its name is in flight."""
        self.check()
        return self.engine.submit(operation)

    def submit_all(self, operations: Sequence[Operation]) -> list[Handle]:
        """Hand several to the engine at once, so that they may share buckets from the start."""
        self.check()
        return self.engine.submit_all(operations)

    def start(self, operations: Sequence[Operation], finish: Callable[[list[Any]], Any]) -> int:
        """Submit operations under one number, for ``finish(number)``.

        ``finish`` makes the caller's result of the operations' results, in the caller's thread.
        """
        handles = self.submit_all(operations)
        number = next(self._numbers)
        self.pending[number] = (handles, finish)
        return number

    def finish(self, number: int) -> Any:
        """Wait for what ``start`` numbered and return its result; None where the number is unknown or finished.

        Raises the first failed operation's error, once all of them have ended.
        """
        handles, finish = self.pending.pop(number, ((), None))
        return None if finish is None else finish(self.wait_all(handles))

    @staticmethod
    def wait_all(handles: Sequence[Handle]) -> list[Any]:
        """Return the results of all handles, or raise the first error once all have ended."""
        results, failure = [], None
        for handle in handles:
            try:
                results.append(handle.wait())
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return results

    def unique_name(self, kind: str) -> str:
        """Return ``"<kind>.noname.<n>"``: equal on all ranks that make the same calls in the same order."""
        return f"{kind}.noname.{self.next_number(kind)}"

    def next_number(self, kind: str) -> int:
        """Count calls by kind, from 1: equal on all ranks that make the same calls in the same order."""
        return next(self._names.setdefault(kind, itertools.count(1)))

    def check(self) -> None:
        """Raise where the session is closed (NotInitializedError) or this is a forked process (SparseRingError)."""
        if self._process != os.getpid():
            raise SparseRingError(FORKED)
        if self._closed:
            raise NotInitializedError

    @property
    def usable(self) -> bool:
        """Whether the session is open and belongs to this process."""
        return not self._closed and self._process == os.getpid()

    def close(self) -> None:
        """Call the observers, say goodbye and stop the engine. Idempotent; does nothing in a forked process."""
        if not self.usable:
            return
        try:
            for observer in self.on_close:
                observer(self)
        finally:
            self._closed = True
            self.pending.clear()
            self.recording.close()
            self.engine.close()
            # The other ranks have said goodbye, and closed their files before.
            self.recording.join()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True)
class _Default:
    """The process's own session, and what ``shutdown()`` undoes."""

    session: Session
    free: Callable[[], None]
    membership: Membership

    def end(self) -> None:
        try:
            self.session.close()
        finally:
            self.free()
            self.membership.leave()


_default: _Default | None = None
_exit_hook_of: int | None = None


def init(comm: Any = None, *, config: Config | None = None) -> None:
    """Join the job; every rank calls it. Idempotent, and possible again after ``shutdown()``.

    comm
        None: all processes that the launcher started (one rank without a launcher). A list of world ranks: these form
        the job, and only they call. An mpi4py communicator: its ranks, on a duplicate. A process group of
        torch.distributed, whatever its backend: its ranks, over a gloo group of their own.
    config
        Settings; default: read from the environment now.

    Raises ConfigError for a wrong setting, SparseRingError where MPI does not fit the launcher, an MPI launcher and torchrun
    contradict each other, ranks run different versions, or this is a forked process; ValueError for a wrong list of ranks.
    """
    global _default, _exit_hook_of
    if _exit_hook_of not in (None, os.getpid()):
        raise SparseRingError(FORKED)
    if _default is not None:
        return
    # First of all: other ranks may be waiting for this one from here on, whatever goes wrong.
    membership = Membership(member_file(), abort_world)
    membership.join()
    kind = start_world(comm, config.transport if config else transport_asked_for(), config)
    config = config or Config.from_environment()
    transport, free = open_world(comm, config, kind)
    # sparse-ring-run puts the rank before each line itself.
    configure_logging(config.log_level, None if config.launcher else transport.rank)
    for name, known in unknown_settings().items():
        logger.warning("%s is no setting of sparse_ring; did you mean %s?", name, known)
    session = Session(transport, config)
    membership.closing = session.recording.close
    _set_threads(config, session.placement)
    if _exit_hook_of is None:
        atexit.register(shutdown)
        _exit_hook_of = os.getpid()
    _default = _Default(session, free, membership)


def shutdown() -> None:
    """Leave the job: say goodbye, stop the engine, free communicators. Idempotent; nothing in a forked process."""
    global _default
    default = _default
    if default is not None and _exit_hook_of == os.getpid():
        _default = None
        default.end()


def is_initialized() -> bool:
    """Return whether ``init()`` was called in this process and ``shutdown()`` was not."""
    return _default is not None and _default.session.usable


def current() -> Session:
    """Return the process's session; NotInitializedError before ``init()``, SparseRingError in a forked process."""
    if _default is None:
        raise NotInitializedError
    _default.session.check()
    return _default.session


def rank() -> int:
    """Return this process's rank in the job. Raises NotInitializedError before ``init()``, as do its siblings."""
    return current().rank


def size() -> int:
    """Return the number of ranks in the job."""
    return current().size


def local_rank() -> int:
    """Return this process's rank among those on its host."""
    return current().local_rank


def local_size() -> int:
    """Return the number of ranks on this host."""
    return current().local_size


def cross_rank() -> int:
    """Return this process's rank among those that have its local rank on their hosts."""
    return current().cross_rank


def cross_size() -> int:
    """Return the number of hosts that have a rank with this local rank."""
    return current().cross_size


def _set_threads(config: Config, placement: Placement) -> None:
    """Share the cores among the ranks of a host: torch's own default gives each rank all of them."""
    if config.threads_per_rank:
        torch.set_num_threads(config.threads_per_rank)
    elif not torch_threads_chosen():
        torch.set_num_threads(max(1, min(torch.get_num_threads(), placement.cores // placement.sharing_ranks)))
