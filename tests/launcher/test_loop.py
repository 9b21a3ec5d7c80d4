"""The launcher's event loop and its end of the wires, without ranks."""

from __future__ import annotations

import io
import os
import signal
import socket

import pytest

from sparse_ring.launcher.base import Mpi, Start
from sparse_ring.launcher.control import KILL, TERMINATE, Report, receive, send_hello
from sparse_ring.launcher.listen import UnixListener
from sparse_ring.launcher.loop import Loop
from sparse_ring.launcher.output import Screen
from sparse_ring.launcher.wires import Wires


def test_loop_calls_who_can_read() -> None:
    reader, writer = socket.socketpair()
    got: list[bytes] = []
    with reader, writer, Loop() as loop:
        loop.add(reader, lambda: got.append(reader.recv(16)))
        writer.send(b"one")
        loop.step(60)
        loop.remove(reader)
        writer.send(b"two")
        loop.step(0)
    assert got == [b"one"]


def test_loop_collects_signals_and_restores_handlers() -> None:
    before = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    with Loop() as loop:
        for signum in before:
            os.kill(os.getpid(), signum)
        loop.step(60)
        assert sorted(loop.take_signals()) == sorted(before)
        assert loop.take_signals() == []
    assert {signum: signal.getsignal(signum) for signum in before} == before


def test_loop_leaves_an_ignored_hangup_ignored() -> None:
    old = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Loop() as loop:
            os.kill(os.getpid(), signal.SIGHUP)
            loop.step(0)
            assert loop.take_signals() == []
    finally:
        signal.signal(signal.SIGHUP, old)


def test_hello_carries_the_pipes() -> None:
    ours, theirs = socket.socketpair()
    reader, writer = os.pipe()
    report = Report(event="hello", rank=1, pid=2, time=3.0)
    with ours, theirs:
        send_hello(theirs, report, reader, reader)
        data, descriptors = receive(ours)
    os.write(writer, b"x")
    assert (data, len(descriptors), os.read(descriptors[1], 8)) == (report.encode(), 2, b"x")
    for descriptor in (reader, writer, *descriptors):
        os.close(descriptor)


class Idle(Mpi):
    """Stands for an mpiexec that has started nothing yet."""

    def command(self, start: Start) -> list[str]:
        return [self.path]


@pytest.mark.parametrize("order", [TERMINATE, KILL])
def test_supervisor_that_connects_late_gets_the_standing_order(order: bytes, tmp_path: object) -> None:
    path = f"{tmp_path}/ranks"
    with Loop() as loop, socket.socket(socket.AF_UNIX) as supervisor:
        wires = Wires(loop, Screen(io.BytesIO(), io.BytesIO()), UnixListener(path), verbose=False)
        wires.start(Start(ranks=1, program=()), Idle("/bin/cat", "cat"), {})
        wires.order(order)
        supervisor.connect(path)
        while not wires.states:
            loop.step(60)
        assert supervisor.recv(16) == order
        supervisor.sendall(Report(event="hello", rank=0, pid=1, time=1.0).encode())
        while wires.states[0].hello is None:
            loop.step(60)
        wires.release()
        assert supervisor.recv(16) == b""
        wires.close()
