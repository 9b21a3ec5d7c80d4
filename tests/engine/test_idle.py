"""An engine with no open request does nothing at all."""

from __future__ import annotations

import threading
from typing import Any

from sparse_ring.config import Config
from sparse_ring.engine.engine import Engine
from sparse_ring.observe.metrics import Metrics
from sparse_ring.transport.base import Transport
from sparse_ring.transport.threads import ThreadWorld
from tests.engine.ranks import Gather


class Counting(Transport):
    """Counts every call that reaches a transport or one of its transfers."""

    def __init__(self, inner: Transport) -> None:
        self.inner, self.rank, self.size, self.calls = inner, inner.rank, inner.size, 0

    def open(self) -> None:
        self.calls += 1
        self.inner.open()

    def isend(self, data: Any, destination: int, tag: int) -> Any:
        self.calls += 1
        return CountingTransfer(self, self.inner.isend(data, destination, tag))

    def irecv(self, buffer: Any, source: int, tag: int) -> Any:
        self.calls += 1
        return CountingTransfer(self, self.inner.irecv(buffer, source, tag))

    def close(self) -> None:
        self.calls += 1
        self.inner.close()

    def abort(self, code: int) -> None:
        self.inner.abort(code)


class CountingTransfer:
    def __init__(self, transport: Counting, inner: Any) -> None:
        self.transport, self.inner = transport, inner

    def test(self) -> bool:
        self.transport.calls += 1
        done: bool = self.inner.test()
        return done

    @property
    def nbytes(self) -> int:
        nbytes: int = self.inner.nbytes
        return nbytes


def test_an_idle_engine_calls_no_transport() -> None:
    world = ThreadWorld(2)
    transports = [Counting(world.transport(rank)) for rank in range(2)]
    engines = [Engine(transport, Config(), Metrics()) for transport in transports]
    quiet = threading.Event()
    assert [transport.calls for transport in transports] == [2, 2]
    for step in range(3):
        for handle in [engine.submit(Gather("w", step)) for engine in engines]:
            assert handle.wait()[0] == [step, step]
        # The batch was the last work of its round, so that from here on nothing may be called.
        before = [transport.calls for transport in transports]
        quiet.wait(0.1)
        assert [transport.calls for transport in transports] == before
    closers = [threading.Thread(target=engine.close) for engine in engines]
    for closer in closers:
        closer.start()
    for closer in closers:
        closer.join()
    assert world.unmatched() == 0
