"""Which traceback is shown last, and when it is shown again."""

from __future__ import annotations

import io

import pytest

from sparse_ring.launcher.lastwords import LINES, LastWords
from sparse_ring.launcher.output import Screen
from tests.launcher.support import Starter

HEAD = b"Traceback (most recent call last):"


def kept(*lines: bytes) -> list[bytes]:
    words = LastWords()
    for line in lines:
        words.notice(line)
    return words.lines


def test_last_traceback_is_kept() -> None:
    assert kept(b"text", HEAD, b"  one", b"KeyError", HEAD, b"  two", b"ValueError") == [HEAD, b"  two", b"ValueError"]
    assert kept(b"text", b"more") == []


@pytest.mark.parametrize(
    "sentence",
    [
        b"During handling of the above exception, another exception occurred:",
        b"The above exception was the direct cause of the following exception:",
    ],
)
def test_chained_exceptions_stay_together(sentence: bytes) -> None:
    lines = [HEAD, b"  one", b"KeyError", b"", sentence, b"", HEAD, b"  two", b"ValueError"]
    assert kept(*lines) == lines


def test_groups_and_fatal_errors_begin_as_well() -> None:
    assert kept(b"  + Exception Group Traceback (most recent call last):", b"  | x")[0].startswith(b"  + Exception")
    assert kept(b"x", b"Fatal Python error: Segmentation fault", b"") == [
        b"Fatal Python error: Segmentation fault",
        b"",
    ]


def test_traceback_that_ended_nothing_is_forgotten() -> None:
    assert kept(HEAD, *[b"ordinary"] * (LINES - 1))[0] == HEAD
    assert kept(HEAD, *[b"ordinary"] * LINES) == []


def test_lines_that_are_last_anyhow_are_not_repeated() -> None:
    screen = Screen(io.BytesIO(), stderr := io.BytesIO())
    screen.line(b"a", stderr)
    screen.line(b"b", stderr)
    screen.show_last([b"a", b"b"])
    assert stderr.getvalue() == b"a\nb\n"
    screen.line(b"c", screen.stdout)
    screen.show_last([b"a", b"b"])
    assert stderr.getvalue() == b"a\nb\na\nb\n"


SCRIPT = """
import os, signal, sys, time
rank = int(os.environ["PMI_RANK"])
def last(*_):
    print("farewell"); os._exit(0)
signal.signal(signal.SIGTERM, last)
if rank == 1:
    time.sleep(1)
    raise ValueError("mine")
time.sleep(600)
"""


@pytest.mark.ranks
def test_first_traceback_is_shown_after_the_output_of_others(starter: Starter) -> None:
    result = starter.launch(3, SCRIPT).end()
    lines = result.stderr.splitlines()
    said = "sparse-ring-run: rank 1 ended with exit code 1; ending the other ranks"
    begin = f"[rank 1] {HEAD.decode()}"
    assert result.stdout.splitlines() == ["[rank 0] farewell", "[rank 2] farewell"] or result.stdout.splitlines() == [
        "[rank 2] farewell",
        "[rank 0] farewell",
    ]
    assert (lines.count(begin), lines.count(said)) == (2, 2)
    half = len(lines) // 2
    assert lines[:half] == lines[half:]
    assert (lines[0], lines[-2:], result.code) == (begin, ["[rank 1] ValueError: mine", said], 1)
