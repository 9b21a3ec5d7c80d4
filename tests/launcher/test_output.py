"""Lines: whole, prefixed, never mixed; progress in place on a terminal and throttled elsewhere."""

from __future__ import annotations

import io
import os
import pty
import sys

import pytest

from sparse_ring.launcher.output import LINE_BYTES, Lines, MpiLines, Screen
from tests.launcher.support import LAUNCHER, Starter


class Terminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def file_screen(clock: Clock | None = None) -> tuple[Screen, io.BytesIO, io.BytesIO]:
    stdout, stderr = io.BytesIO(), io.BytesIO()
    return Screen(stdout, stderr, clock=clock or Clock(), columns=lambda: 40), stdout, stderr


def test_lines_are_whole_whatever_the_chunks() -> None:
    screen, stdout, stderr = file_screen()
    one, two = Lines(screen, stdout, "rank 0", 0), Lines(screen, stdout, "rank 1", 1)
    one.feed(b"al")
    two.feed(b"beta\r\ngam")
    one.feed(b"pha\n\nlast")
    two.feed(b"ma\n")
    one.close()
    assert stdout.getvalue() == b"[rank 1] beta\n[rank 0] alpha\n[rank 0] \n[rank 1] gamma\n[rank 0] last\n"
    assert stderr.getvalue() == b""


def test_line_without_end_is_shown_in_pieces() -> None:
    screen, stdout, _ = file_screen()
    lines = Lines(screen, stdout, "rank 0")
    lines.feed(b"x" * (LINE_BYTES + 5))
    lines.feed(b"\n")
    assert stdout.getvalue() == b"[rank 0] " + b"x" * LINE_BYTES + b"\n[rank 0] xxxxx\n"


def test_every_line_is_noticed() -> None:
    screen, stdout, _ = file_screen()
    noticed: list[bytes] = []
    Lines(screen, stdout, "rank 0", notice=noticed.append).feed(b"a\nb\n")
    assert noticed == [b"a", b"b"]


def test_progress_in_a_file_is_one_line_in_ten_seconds() -> None:
    clock = Clock()
    screen, _, stderr = file_screen(clock)
    lines = Lines(screen, stderr, "rank 0")
    for step in range(1, 25):
        lines.feed(f"step {step}\r".encode())
        clock.now += 1.0
    assert stderr.getvalue() == b"[rank 0] step 1\n[rank 0] step 11\n[rank 0] step 21\n"
    lines.feed(b"\n")
    assert stderr.getvalue().endswith(b"step 21\n[rank 0] step 24\n")


def test_progress_that_was_shown_is_not_repeated_by_its_newline() -> None:
    screen, _, stderr = file_screen()
    Lines(screen, stderr, "rank 0").feed(b"step 1\rdone\n")
    assert stderr.getvalue() == b"[rank 0] step 1\n[rank 0] done\n"


def test_carriage_return_in_front_shows_the_text_before_it() -> None:
    screen, _, stderr = file_screen()
    Lines(screen, stderr, "rank 0").feed(b"\r 10%\r 20%\r100%\n")
    assert stderr.getvalue() == b"[rank 0]  10%\n[rank 0] 100%\n"


def test_progress_on_a_terminal_stays_below_the_lines() -> None:
    stdout, stderr = io.BytesIO(), Terminal()
    screen = Screen(stdout, stderr, colour=False, columns=lambda: 20)
    lines = Lines(screen, stderr, "rank 0")
    lines.feed(b"step 1 of many, many\r")
    Lines(screen, stderr, "rank 1", 1).feed(b"hello\n")
    lines.feed(b"done\n")
    erase, bottom = b"\r\x1b[K", b"[rank 0] step 1 of m"[:19]
    assert stderr.getvalue() == (
        erase + bottom + erase + b"[rank 1] hello\n" + bottom + erase + b"[rank 0] done\n"
    )  # fmt: skip


def test_prefix_is_coloured_on_a_terminal_only() -> None:
    stdout, stderr = io.BytesIO(), Terminal()
    screen = Screen(stdout, stderr)
    assert screen.prefix("rank 7", 7, stderr) == b"\x1b[33m[rank 7]\x1b[0m "
    assert screen.prefix("rank 7", 7, stdout) == b"[rank 7] "


def test_launcher_speaks_on_stderr() -> None:
    screen, stdout, stderr = file_screen()
    screen.say("something")
    assert (stdout.getvalue(), stderr.getvalue()) == (b"", b"sparse-ring-run: something\n")


@pytest.mark.parametrize(("verbose", "shown"), [(True, b"[mpi] noise\n"), (False, b"")])
def test_output_of_mpi_is_kept(verbose: bool, shown: bytes) -> None:
    from collections import deque

    screen, _, stderr = file_screen()
    kept: deque[bytes] = deque()
    MpiLines(screen, kept, verbose=verbose).feed(b"noise\n")
    assert (list(kept), stderr.getvalue()) == ([b"noise"], shown)


def test_reader_that_went_away_is_remembered() -> None:
    class Gone(io.BytesIO):
        def write(self, data: object) -> int:
            raise BrokenPipeError

    stdout, stderr = Gone(), io.BytesIO()
    screen = Screen(stdout, stderr)
    screen.line(b"text", stdout)
    screen.line(b"text", stderr)
    assert (screen.broken, stderr.getvalue()) == (True, b"text\n")


def test_partial_writes_are_continued() -> None:
    class Slow(io.BytesIO):
        def write(self, data: bytes) -> int:  # type: ignore[override]
            return super().write(data[:3])

    stdout = Slow()
    Screen(stdout, io.BytesIO()).line(b"abcdefgh", stdout)
    assert stdout.getvalue() == b"abcdefgh\n"


@pytest.mark.ranks
def test_streams_stay_apart_and_lines_whole_under_load(starter: Starter) -> None:
    script = (
        "import os, sys\nrank = os.environ['PMI_RANK']\n"
        "for number in range(300):\n"
        "    print(rank * 50, number, end=''); print(); print('e' + rank, number, file=sys.stderr)\n"
    )
    result = starter.launch(3, script).end()
    for rank in "012":
        mine = [line for line in result.stdout.splitlines() if line.startswith(f"[rank {rank}]")]
        assert mine == [f"[rank {rank}] {rank * 50} {number}" for number in range(300)]
        errors = [line for line in result.stderr.splitlines() if line.startswith(f"[rank {rank}]")]
        assert errors == [f"[rank {rank}] e{rank} {number}" for number in range(300)]
    assert (len(result.stdout.splitlines()), len(result.stderr.splitlines()), result.code) == (900, 900, 0)


@pytest.mark.ranks
def test_terminal_shows_colour_and_progress(starter: Starter) -> None:
    leader, follower = pty.openpty()
    path = starter.folder / "script.py"
    path.write_text("import sys\nsys.stderr.write('step 1\\r'); sys.stderr.flush()\nprint('done')\n")
    pid = os.fork()
    if pid == 0:
        os.dup2(follower, 1)
        os.dup2(follower, 2)
        os.execv(sys.executable, [*LAUNCHER, "-np", "1", sys.executable, str(path)])
    os.close(follower)
    shown = b""
    try:
        while data := os.read(leader, 4096):
            shown += data
    except OSError:
        pass
    os.close(leader)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert b"\r\x1b[K\x1b[36m[rank 0]\x1b[0m step 1" in shown
    assert b"\x1b[36m[rank 0]\x1b[0m done\r\n" in shown
    assert shown.endswith(b"\r\x1b[K")
