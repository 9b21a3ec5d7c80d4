"""The transfers of control frames, and frames that are damaged or out of place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from sparse_ring.config import Config
from sparse_ring.engine.control import Control
from sparse_ring.engine.engine import Engine
from sparse_ring.engine.frames import Frame, Settings, pack_frame, unpack_frame
from sparse_ring.engine.link import CONTROL_TAG
from sparse_ring.engine.operation import Request
from sparse_ring.errors import MessageError, StallError
from sparse_ring.observe.metrics import Metrics
from sparse_ring.transport.base import Bytes, Transfer, Transport
from sparse_ring.transport.threads import ThreadWorld
from tests.engine.ranks import Gather, run_ranks


def never(seconds: float) -> None:
    raise AssertionError("every frame is here already")


def test_frames_go_from_each_to_all_but_those_who_left() -> None:
    world = ThreadWorld(3)
    metrics = [Metrics() for _ in range(3)]
    controls = [Control(world.transport(rank), metrics[rank]) for rank in range(3)]
    for control in controls:
        control.post()
    assert [control.arrived() for control in controls] == [False] * 3
    for rank in (1, 2):
        for peer in {0, 1, 2} - {rank}:
            world.transport(rank).isend(np.full(rank, rank, dtype=np.uint8), peer, CONTROL_TAG)
    assert controls[0].arrived()
    got: dict[int, bytes] = {}
    controls[0].exchange(b"zero", got.__setitem__, never)
    assert got == {1: b"\x01", 2: b"\x02\x02"}
    assert metrics[0].control_bytes == 8
    controls[0].post(gone=[2])
    assert controls[0].peers == [1]
    world.transport(1).isend(np.zeros(0, dtype=np.uint8), 0, CONTROL_TAG)
    controls[0].exchange(b"again", got.__setitem__, never)
    assert got == {1: b"", 2: b"\x02\x02"}
    assert metrics[0].control_bytes == 13


def test_what_waiting_raises_ends_the_exchange() -> None:
    control = Control(ThreadWorld(2).transport(0), Metrics())
    control.post()

    def waiting(seconds: float) -> None:
        raise StallError("Shutdown", [1], seconds)

    with pytest.raises(StallError, match="Shutdown: rank 1 missing"):
        control.exchange(b"frame", lambda rank, data: None, waiting)


Change = Callable[[bytes], bytes]


def flip_a_bit(data: bytes) -> bytes:
    return data[:-1] + bytes((data[-1] ^ 4,))


def another_round(data: bytes) -> bytes:
    return pack_frame(replace(_frame(data), round=7), [])


def foreign_settings(data: bytes) -> bytes:
    return pack_frame(replace(_frame(data), settings=Settings(1, 1)), [])


def _frame(data: bytes) -> Frame:
    return unpack_frame(data, 1, lambda cache_id, rank, absent: Request("w", "allgather"))


class Damaging(Transport):
    """Changes every control frame after the first that rank 1 sends."""

    def __init__(self, inner: Transport, change: Change) -> None:
        self.inner, self.rank, self.size, self.change, self.frames = inner, inner.rank, inner.size, change, 0

    def open(self) -> None:
        self.inner.open()

    def isend(self, data: Bytes, destination: int, tag: int) -> Transfer:
        if tag == CONTROL_TAG and self.rank == 1:
            self.frames += 1
            if self.frames > 1:
                data = np.frombuffer(self.change(data.tobytes()), dtype=np.uint8)
        return self.inner.isend(data, destination, tag)

    def irecv(self, buffer: Bytes, source: int, tag: int) -> Transfer:
        return self.inner.irecv(buffer, source, tag)

    def close(self) -> None:
        self.inner.close()

    def abort(self, code: int) -> None:
        self.inner.abort(code)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (flip_a_bit, "damaged control frame of 15 bytes: wrong checksum"),
        (another_round, "control frame of round 7 in round 1"),
        (foreign_settings, "control frame of round 1 with the wrong settings"),
    ],
)
def test_a_wrong_control_frame_names_its_rank(change: Change, reason: str) -> None:
    def program(engine: Engine) -> None:
        assert engine.submit(Gather("w", 1)).wait()[0] == [1, 1]
        if engine.rank == 1:
            with pytest.raises(StallError, match=r"gather of \['w'\]: rank 0 missing"):
                engine.submit(Gather("w")).wait()
            return
        with pytest.raises(MessageError) as info:
            engine.submit(Gather("w")).wait()
        assert str(info.value) == f"Message from rank 1, parameter 'w': {reason}"
        assert (info.value.rank, info.value.parameter) == (1, "w")
        with pytest.raises(MessageError, match=r"^Message from rank 1, parameter 'later'"):
            engine.submit(Gather("later"))

    config = Config(stall_shutdown_time_seconds=1.0)
    run_ranks(2, program, config, wrap=lambda transport: Damaging(transport, change))
