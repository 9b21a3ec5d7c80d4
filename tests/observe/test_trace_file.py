"""A trace is valid JSON after every write, whatever happens then."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sparse_ring.observe.trace_file import TraceFile, event_lines, read_events


def test_every_write_leaves_a_whole_array(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    file = TraceFile(str(path))
    assert path.read_text() == "[\n]\n"
    file.append([{"a": 1}])
    assert path.read_text() == '[\n{"a":1}\n]\n'
    file.append([])
    file.append([{"b": "é\n"}, {"c": [1, 2]}])
    assert path.read_text() == '[\n{"a":1},\n{"b":"\\u00e9\\n"},\n{"c":[1,2]}\n]\n'
    file.close()
    assert json.loads(path.read_text()) == read_events(path) == [{"a": 1}, {"b": "é\n"}, {"c": [1, 2]}]


def test_an_older_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text("x" * 1000)
    TraceFile(str(path)).close()
    assert path.read_text() == "[\n]\n"


@pytest.mark.parametrize("length", range(len('[\n{"a":1},\n{"b":{"c":2}}\n]\n') + 1))
def test_events_are_read_from_a_torn_file(tmp_path: Path, length: int) -> None:
    path = tmp_path / "trace"
    whole = '[\n{"a":1},\n{"b":{"c":2}}\n]\n'
    path.write_text(whole[:length])
    expected = [{"a": 1}] * (length >= len('[\n{"a":1}')) + [{"b": {"c": 2}}] * (length >= len(whole) - 3)
    assert read_events(path) == expected
    assert len(list(event_lines(path))) == len(expected)


@pytest.mark.faults
def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    # A limit on the size of files makes a short write and then an error, as a full disk does.
    script = (
        "import resource, signal, sys\n"
        "from sparse_ring.observe.trace_file import TraceFile\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "file = TraceFile(sys.argv[1])\n"
        "file.append([{'n': 0}])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))\n"
        "try:\n"
        "    file.append([{'n': n} for n in range(1, 100)])\n"
        "except OSError as error:\n"
        "    print(error.errno)\n"
        "file.append([{'n': 100}])\n"
    )
    path = tmp_path / "trace"
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout == "27\n"
    assert json.loads(path.read_text()) == [{"n": 0}, {"n": 100}]


def test_a_device_without_room_is_an_error_at_once() -> None:
    with pytest.raises(OSError, match="No space left"):
        TraceFile("/dev/full")
