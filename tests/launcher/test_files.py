"""Copies of the ranks' output in files."""

from __future__ import annotations

import io
import resource
import signal
from pathlib import Path

import pytest

from sparse_ring.errors import SparseRingError
from sparse_ring.launcher.files import OutputFiles
from sparse_ring.launcher.output import Lines, Screen
from tests.launcher.support import LAUNCHER, Starter


def test_bytes_are_copied_as_they_come(tmp_path: Path) -> None:
    said: list[str] = []
    screen = Screen(stdout := io.BytesIO(), io.BytesIO())
    reader = OutputFiles(str(tmp_path / "a" / "b"), said.append).copying(
        3, "stderr", Lines(screen, screen.stdout, "rank 3")
    )
    reader.feed(b"one\r")
    reader.feed(b"half")
    path = tmp_path / "a" / "b" / "rank.3" / "stderr"
    assert path.read_bytes() == b"one\rhalf"
    reader.close()
    assert (stdout.getvalue(), said) == (b"[rank 3] one\n[rank 3] half\n", [])


def test_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SparseRingError, match=r"^--output-filename .*/file: the folder cannot be made \("):
        OutputFiles(str(tmp_path / "file"), print)


@pytest.mark.faults
def test_full_disk_is_said_once_and_the_screen_goes_on(tmp_path: Path) -> None:
    said: list[str] = []
    screen = Screen(stdout := io.BytesIO(), io.BytesIO())
    reader = OutputFiles(str(tmp_path), said.append).copying(0, "stdout", Lines(screen, screen.stdout, "rank 0"))
    old, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4, old[1]))
    try:
        for text in (b"12\n", b"345\n", b"67\n"):
            reader.feed(text)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)
    reader.close()
    path = tmp_path / "rank.0" / "stdout"
    assert path.read_bytes() == b"12\n3"
    assert said == [f"{path} cannot be written (File too large); the ranks go on without it"]
    assert stdout.getvalue() == b"[rank 0] 12\n[rank 0] 345\n[rank 0] 67\n"


@pytest.mark.ranks
def test_every_rank_has_its_files(starter: Starter, tmp_path: Path) -> None:
    script = "import os, sys\nrank = os.environ['PMI_RANK']\nprint('out', rank)\nprint('err', rank, file=sys.stderr)\n"
    result = starter.launch(2, script, options=["--output-filename", str(tmp_path / "logs")]).end()
    assert sorted(result.stdout.splitlines()) == ["[rank 0] out 0", "[rank 1] out 1"]
    written = {str(path.relative_to(tmp_path / "logs")): path.read_text() for path in (tmp_path / "logs").rglob("std*")}
    assert written == {
        "rank.0/stdout": "out 0\n", "rank.0/stderr": "err 0\n", "rank.1/stdout": "out 1\n", "rank.1/stderr": "err 1\n",
    }  # fmt: skip


@pytest.mark.ranks
def test_folder_that_cannot_be_made_starts_nothing(starter: Starter) -> None:
    result = starter.start([*LAUNCHER, "-np", "1", "--output-filename", "/dev/null/x"], "print('ran')").end()
    assert (result.stdout, result.code) == ("", 1)
    assert result.stderr.startswith("sparse-ring-run: --output-filename /dev/null/x: the folder cannot be made (")
