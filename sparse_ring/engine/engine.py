"""The background thread of a session: agrees with the other ranks on what is ready, and runs it.

One round of agreement: every living rank sends its new requests to every other and waits for theirs (``control.py``,
``frames.py``), all feed them into equal tables (``agreement.py``), and what everybody has submitted runs in buckets
(``fusion.py``). A round is entered only when it can change something (``queue.py``), so an idle rank sleeps and calls
no transport.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Sequence

from sparse_ring.config import Config
from sparse_ring.engine.agreement import Agreement, Decision
from sparse_ring.engine.control import Control
from sparse_ring.engine.frames import (
    MOST_ENTRIES,
    PAYLOADS_BYTES,
    ROOM_BYTES,
    Frame,
    Settings,
    pack_frame,
    pack_payload,
    payload_entry_bytes,
    payload_room_bytes,
    unpack_frame,
)
from sparse_ring.engine.fusion import buckets
from sparse_ring.engine.handle import Handle, renewed
from sparse_ring.engine.link import LOGGER, Link
from sparse_ring.engine.operation import Agreed, Operation, Request
from sparse_ring.engine.pace import Pace
from sparse_ring.engine.patience import sleep_precisely
from sparse_ring.engine.queue import Queue, Submitted, Turn
from sparse_ring.engine.stall import StallCheck
from sparse_ring.errors import MessageError, SparseRingError, StallError
from sparse_ring.observe.metrics import Metrics
from sparse_ring.observe.timeline import Timeline, Track, now, title
from sparse_ring.transport.base import Transport


class Engine:
    """Runs named operations in an order that all ranks agree on, on one daemon thread.

    The constructor returns once the transport is open; it raises what ``Transport.open`` raises.
    ``link`` is what operations are run with; it belongs to the engine's thread.
    """

    def __init__(
        self, transport: Transport, config: Config, metrics: Metrics, timeline: Timeline | None = None
    ) -> None:
        self.rank, self.size = transport.rank, transport.size
        self.link = Link(transport, config, metrics, timeline)
        self._timeline = self.link.timeline
        self._transport, self._config = transport, config
        self._control = Control(transport, metrics, self.link.patience)
        self._agreement = Agreement(self.rank, self.size)
        self._pace = Pace(self.size)
        self._payload_room_bytes = payload_room_bytes(self.size)
        self._queue = Queue(self.rank, config.fusion_threshold, config.cycle_time / 1000, self._pace.worth_sending)
        self.link.hurry = self._queue.caller_waits
        self._stall = StallCheck(self.rank, config)
        self._round = 0
        self._frames: dict[int, Frame] = {}
        self._opened = threading.Event()
        self._thread = threading.Thread(target=self._main, name=f"sparse_ring-engine-{self.rank}", daemon=True)
        self._thread.start()
        self._opened.wait()
        if self._queue.failure is not None:
            raise self._queue.failure

    def submit(self, operation: Operation) -> Handle:
        """Hand over one operation, from any thread; see :meth:`submit_all`."""
        return self.submit_all((operation,))[0]

    def submit_all(self, operations: Sequence[Operation]) -> list[Handle]:
        """Hand over operations at once, so that they reach the other ranks together; returns their handles.

        Raises ValueError naming a tensor that is still in flight (then none is submitted), NotInitializedError after
        :meth:`close`, and SparseRingError (MessageError where a control frame was damaged) naming the cause once the
        engine has failed. After another rank has left, the handles carry RankLostError.
        """
        return self._queue.put(operations)

    def close(self) -> None:
        """Say goodbye to the other ranks and end the thread; open operations fail. May be called again.

        Waits until every other rank shuts down or submits something, but not past ``stall_shutdown_time_seconds``.
        """
        self._queue.close()
        self._thread.join()

    def abort(self, code: int) -> None:
        """End the whole job with this exit code, from any thread; open operations fail where the process goes on."""
        self._transport.abort(code)
        self._queue.fail(SparseRingError(f"rank {self.rank} aborted the job with code {code}."))

    def _main(self) -> None:
        try:
            sleep_precisely()
            self._transport.open()
            self._control.post()
            self._opened.set()
            while self._await_turn() is not Turn.LAST:
                self._take_turn()
            self._say_goodbye()
        except BaseException as error:
            self._queue.fail(error)
            expected = isinstance(error, SparseRingError)
            LOGGER.error("Rank %d: the engine has stopped: %s", self.rank, error, exc_info=not expected)
        finally:
            try:
                self._transport.close()
            except Exception:
                LOGGER.exception("Rank %d: the transport did not close.", self.rank)
            self._opened.set()

    def _await_turn(self) -> Turn:
        while True:
            turn = self._queue.next_turn()
            if turn is Turn.PREPARE:
                self._queue.unprepared().prepare(self.link)
                continue
            if turn is not Turn.LISTEN:
                return turn
            if self._control.arrived():
                return Turn.ROUND
            self._check_stalls()

    def _take_turn(self) -> None:
        """Carry out one round and run what is ready after it."""
        began = now()
        frame, entries = self._compose()
        started = time.monotonic()
        self._exchange(frame, entries, lambda waited: self._check_stalls())
        self._pace.note(frame.payload_bytes * (self.size - 1), time.monotonic() - started)
        self._note_round(began, frame)
        frames, self._frames = self._frames, {}
        gone = [rank for rank, other in frames.items() if other.goodbye]
        decisions = [] if gone else self._agreement.process(frames)
        self._control.post(gone)
        if gone:
            self._queue.lose(min(gone))
        self._run(decisions)

    def _compose(self) -> tuple[Frame, list[bytes]]:
        """Return the frame with as many unsent requests as fit, and its entries."""
        frame = Frame(self._round, settings=self._settings())
        describe = self._agreement.entry
        entries: list[bytes] = []
        offered: list[tuple[int, Operation]] = []
        used_bytes = 0

        def accept(submitted: Submitted) -> bool:
            nonlocal used_bytes
            if submitted.operation.prepares:
                # Where another rank has begun the round, it may be only now that there is time for this one.
                submitted.operation.prepare(self.link)
            try:
                entry, request = describe(submitted.operation.request)
            except ValueError as error:
                self._queue.finish([submitted.name], [error])
                return True
            if used_bytes + len(entry) > ROOM_BYTES or len(entries) == MOST_ENTRIES:
                return False
            used_bytes += len(entry)
            if submitted.operation.payload_bytes:
                offered.append((len(entries), submitted.operation))
            entries.append(entry)
            frame.requests.append(request)
            return True

        self._queue.take(accept)
        self._attach(offered, frame, entries)
        return frame, entries

    def _attach(self, offered: Sequence[tuple[int, Operation]], frame: Frame, entries: list[bytes]) -> None:
        """Let the payloads of operations at these places travel with the frame: all, or none where they are too many.

        A few of them would save nothing: those that are left need an exchange all the same.
        """
        room = {False: self._payload_room_bytes, True: PAYLOADS_BYTES}
        for _, operation in offered:
            nbytes = payload_entry_bytes(operation.payload_bytes)
            room[True] -= nbytes
            room[False] -= 0 if operation.gathers else nbytes
        if min(room.values()) < 0:
            return
        for place, operation in offered:
            payload = operation.payload(self.size)
            frame.payloads[place] = payload
            entries[place] = pack_payload(entries[place], payload)

    def _settings(self) -> Settings | None:
        if self.rank == 0 and self._round == 0:
            return Settings(min(self._config.fusion_threshold, 2**64 - 1), self._config.cache_capacity)
        return None

    def _exchange(self, frame: Frame, entries: Sequence[bytes], waiting: Callable[[float], None]) -> None:
        """Swap this round's frames with all living ranks, into ``_frames``."""
        self._frames = {self.rank: frame}

        def arrived(peer: int, data: bytes) -> None:
            other = unpack_frame(data, peer, self._agreement.cached)
            if other.round != self._round:
                raise MessageError(f"control frame of round {other.round} in round {self._round}", rank=peer)
            if (other.settings is not None) != (peer == 0 and self._round == 0):
                raise MessageError(f"control frame of round {self._round} with the wrong settings", rank=peer)
            self._frames[peer] = other
            self.link.metrics.received_bytes += other.payload_bytes

        self._control.exchange(pack_frame(frame, entries), arrived, waiting, self.link.hurry, frame.payload_bytes)
        settings = self._frames[0].settings if 0 in self._frames else None
        if settings is not None:
            self._queue.fusion_threshold = settings.fusion_threshold
            self._agreement.cache_capacity = settings.cache_capacity
        self._round = (self._round + 1) & 0xFFFFFFFF

    def _check_stalls(self) -> None:
        """Report what stalls; past the deadline fail those operations and raise the first one's StallError.

        The engine ends with it: the other ranks may still count on what this one has promised.
        """
        late = self._stall.overdue(
            self._queue.open_operations, lambda name: self._agreement.missing(name, self._frames)
        )
        if late:
            self._queue.finish([submitted.name for submitted, _ in late], [error for _, error in late])
            raise late[0][1]

    def _run(self, decisions: Sequence[Decision]) -> None:
        ready = []
        for decision in decisions:
            submitted = self._queue.find(decision.name)
            if decision.error is not None:
                self._queue.finish([decision.name], [decision.error])
            elif all(request.absent for request in decision.requests):
                self._queue.finish([decision.name], [None])
            elif submitted is not None:
                operation = _taking_part(submitted.operation, decision.requests)
                ready.append(Agreed(operation, decision.requests, decision.payloads))
        for batch in buckets(ready, self._queue.fusion_threshold):
            began = now()
            names = [agreed.operation.request.name for agreed in batch] if self._timeline.on else [""]
            self._timeline.bucket = title(names)
            sent_bytes, started = self.link.metrics.sent_bytes, time.monotonic()
            self._run_batch(batch)
            self._pace.note(self.link.metrics.sent_bytes - sent_bytes, time.monotonic() - started)
            self._timeline.work(batch[0].operation.request.kind, began, tensors=names)

    def _note_round(self, began: int, frame: Frame) -> None:
        if self._timeline.on:
            details = {"round": frame.round, "told": len(frame.requests), "data_bytes": frame.payload_bytes}
            self._timeline.span(Track.ENGINE, "agreement", began, **details)
        if self._timeline.mark_cycles:
            self._timeline.mark(Track.ENGINE, "cycle")

    def _run_batch(self, batch: Sequence[Agreed]) -> None:
        kind = type(batch[0].operation)
        self.link.next_batch()
        results: Sequence[object]
        try:
            results = kind.run(batch, self.link)
            if len(results) != len(batch):
                raise SparseRingError(f"{kind.__name__}.run gave {len(results)} results for {len(batch)} operations.")
        except Exception as error:
            # The handles keep the error; its frames must not keep the batch's tensors with it.
            trace = error.__traceback__.tb_next if error.__traceback__ is not None else None
            traceback.clear_frames(trace)
            results = [error.with_traceback(trace)] * len(batch)
        self._queue.finish([agreed.operation.request.name for agreed in batch], results)
        if self.link.failure is not None:
            raise renewed(self.link.failure)

    def _say_goodbye(self) -> None:
        """Take the last round, in which the other ranks learn that this one leaves."""
        self._queue.fail_open(
            lambda name: SparseRingError(
                f"Tensor '{name}': rank {self.rank} shut down before every rank had submitted it; "
                f"wait for its handle before that."
            )
        )
        frame = Frame(self._round, goodbye=True, settings=self._settings())

        def waiting(waited: float) -> None:
            self._stall.goodbye(waited, [peer for peer in self._control.peers if peer not in self._frames])

        try:
            self._exchange(frame, (), waiting)
        except StallError as error:
            LOGGER.warning("Rank %d leaves without the others' goodbye. %s", self.rank, error)


def _taking_part(operation: Operation, requests: Sequence[Request]) -> Operation:
    """Return what this rank runs: an absent rank learns only now what kind the others' operation is."""
    kind = next(request.kind for request in requests if not request.absent)
    if kind == operation.request.kind or operation.alternative is None:
        return operation
    return operation.alternative()
