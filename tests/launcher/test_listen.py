"""Who gets in over TCP, and what a rank's supervisor sends through it."""

from __future__ import annotations

import os
import selectors
import socket
import threading
from collections.abc import Iterator

import pytest

from sparse_ring.errors import SparseRingError
from sparse_ring.launcher.control import (
    ACCEPTED,
    NONCE_BYTES,
    PROOF_BYTES,
    SECRET_VARIABLE,
    Proof,
    Report,
    check_proof,
    decode,
    receive,
)
from sparse_ring.launcher.listen import TcpListener, UnixListener
from sparse_ring.launcher.loop import Loop
from sparse_ring.launcher.uplink import Forward, TcpUplink, UnixUplink

HELLO = Report(event="hello", rank=1, pid=2, time=3.0, host="h")


class Office:
    """A listener for two ranks that notes who joined."""

    def __init__(self) -> None:
        self.joined: list[tuple[socket.socket, list[int], float]] = []
        self.listener = TcpListener("127.0.0.1")
        self.loop = Loop()

    def open(self) -> None:
        self.listener.open(self.loop, 2, lambda *who: self.joined.append(who))
        self.address = self.listener.arguments()[1]
        self.secret = self.listener.variables()[SECRET_VARIABLE]

    def call(self) -> socket.socket:
        host, _, port = self.address.rpartition(":")
        caller = socket.create_connection((host, int(port)), 60)
        self.loop.step(60)
        return caller

    def answer(self, role: str, rank: int, secret: str) -> bytes:
        """Introduce a connection; returns what the listener says, nothing where it closes."""
        with self.call() as caller:
            caller.sendall(Proof(role, rank, 1.0).encode(secret, caller.recv(NONCE_BYTES)))
            self.loop.step(60)
            return caller.recv(8)


@pytest.fixture
def office() -> Iterator[Office]:
    result = Office()
    with result.loop:
        result.open()
        yield result
        result.listener.close()
        for channel, outputs, _ in result.joined:
            channel.close()
            for descriptor in outputs:
                os.close(descriptor)


def test_arguments_lead_to_the_listener(office: Office) -> None:
    assert office.listener.arguments() == ["--connect", office.address]
    assert len(office.secret) == 64
    assert UnixListener("/x/ranks").arguments() == ["--socket", "/x/ranks"]


@pytest.mark.parametrize(("role", "rank"), [("control", 2), ("control", -1), ("other", 0)])
def test_who_is_no_part_of_the_job_is_refused(office: Office, role: str, rank: int) -> None:
    assert office.answer(role, rank, office.secret) == b""


def test_who_does_not_know_the_secret_is_refused(office: Office) -> None:
    assert office.answer("control", 0, "0" * 64) == b""
    assert office.answer("control", 0, office.secret) == ACCEPTED


def test_rank_that_is_taken_is_refused(office: Office) -> None:
    assert [office.answer("stdout", 0, office.secret) for _ in range(2)] == [ACCEPTED, b""]


def test_endless_talker_is_refused(office: Office) -> None:
    with office.call() as caller:
        caller.recv(NONCE_BYTES)
        caller.sendall(b"x" * (PROOF_BYTES + 1))
        office.loop.step(60)
        office.loop.step(60)
        assert is_closed(caller)
    assert office.joined == []


def is_closed(caller: socket.socket) -> bool:
    try:
        return caller.recv(8) == b""
    except ConnectionResetError:
        return True


def test_proof_is_good_for_one_nonce() -> None:
    line = Proof("stderr", 1, 2.5).encode("secret", b"n" * 16)
    assert check_proof(line[:-1], "secret", b"n" * 16, 2) == Proof("stderr", 1, 2.5)
    assert check_proof(line[:-1], "secret", b"m" * 16, 2) is None
    assert check_proof(b"\xff", "secret", b"n" * 16, 2) is None


def test_supervisor_joins_and_its_output_comes_through(office: Office) -> None:
    texts = b"o" * 3_000_000, b"errors"
    thread = threading.Thread(target=supervise, args=(office.address, office.secret, texts))
    thread.start()
    while not office.joined:
        office.loop.step(60)
    channel, outputs, offset = office.joined[0]
    assert decode(receive(channel)[0]) == HELLO
    got = [drain(descriptor) for descriptor in outputs]
    thread.join()
    assert got == list(texts)
    # One clock here, so only half of the connections' time is between them.
    assert abs(offset) < 60


def supervise(address: str, secret: str, texts: tuple[bytes, bytes]) -> None:
    """Be a supervisor whose rank writes ``texts`` into its pipes."""
    uplink = TcpUplink(address, secret, 1)
    pipes = [os.pipe() for _ in texts]
    with selectors.DefaultSelector() as selector:
        uplink.hello(HELLO, pipes[0][0], pipes[1][0], selector)
        for (_, writer), text in zip(pipes, texts, strict=True):
            thread = threading.Thread(target=write, args=(writer, text))
            thread.start()
        while selector.get_map():
            for key, _ in selector.select():
                key.data()
        assert uplink.output_is_through()
    uplink.close()
    uplink.clear()


def write(descriptor: int, text: bytes) -> None:
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)


def drain(descriptor: int) -> bytes:
    data = b""
    while piece := os.read(descriptor, 1 << 16):
        data += piece
    return data


def test_rank_finds_a_closed_pipe_where_the_launcher_is_gone() -> None:
    reader, writer = os.pipe()
    ours, theirs = socket.socketpair()
    with selectors.DefaultSelector() as selector:
        forward = Forward(selector, reader, ours)
        os.write(writer, b"text")
        assert not forward.idle
        theirs.close()
        while selector.get_map():
            for key, _ in selector.select(60):
                key.data()
        assert forward.idle
    with pytest.raises(BrokenPipeError):
        os.write(writer, b"more")
    os.close(writer)


def test_address_of_another_host_cannot_be_listened_on() -> None:
    with Loop() as loop, pytest.raises(SparseRingError, match=r"^The launcher cannot listen on 192\.0\.2\.1: "):
        TcpListener("192.0.2.1").open(loop, 1, lambda *who: None)


def test_folder_of_a_launcher_that_was_killed_is_removed(tmp_path: object) -> None:
    folder = f"{tmp_path}/sparse-ring-x"
    os.mkdir(folder)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/ranks")
        listener.listen(2)
        uplink = UnixUplink(f"{folder}/ranks", 3)
        uplink.clear()
        assert (uplink.member_file, os.listdir(folder)) == (f"{folder}/ranks.3", ["ranks"])
    uplink.clear()
    uplink.close()
    assert not os.path.exists(folder)
