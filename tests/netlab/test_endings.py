"""Nothing is left of a lab, whatever ends it; and labs keep out of one another's way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.netlab import Lab, LabError, links
from benchmarks.netlab.namespaces import building, remove_leftovers
from benchmarks.netlab.signals import put_off
from tests.netlab.endings import labs_of, pids_in, wait_until_ended

pytestmark = pytest.mark.usefixtures("possible")
ROOT = Path(__file__).parents[2]
STARTERS = ["torch", pytest.param("mpiexec", marks=pytest.mark.ranks)]


def folders(pid: int) -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob(f"srl{pid}*"))


@pytest.fixture
def running(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A lab of the command line and the pids of its two ranks, which sleep."""
    command = ["sh", "-c", f"echo $$ > {tmp_path}/$$; exec sleep 1000"]
    lab = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.netlab", "--with", request.param, "--", *command], cwd=ROOT, text=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield lab, pids_in(tmp_path, 2)
    finally:
        lab.kill()
        lab.communicate()
        with building():
            remove_leftovers()


@pytest.mark.parametrize("running", STARTERS, indirect=True)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_takes_everything_away(running: tuple[subprocess.Popen[str], list[int]], number: signal.Signals) -> None:
    lab, ranks = running
    assert labs_of(lab.pid)
    lab.send_signal(number)
    _, said = lab.communicate(timeout=60)
    assert lab.returncode == 128 + number
    assert "Traceback" not in said
    assert (labs_of(lab.pid), folders(lab.pid)) == ([], [])
    wait_until_ended(ranks)


@pytest.mark.parametrize("running", STARTERS, indirect=True)
def test_next_lab_takes_away_what_a_killed_one_left(running: tuple[subprocess.Popen[str], list[int]]) -> None:
    lab, ranks = running
    lab.kill()
    wait_until_ended(ranks)
    assert labs_of(lab.pid)
    with Lab(hosts=1) as mine:
        # Also of one that nobody has waited for yet.
        assert (labs_of(lab.pid), folders(lab.pid)) == ([], [])
        assert labs_of(os.getpid()) == [mine.name]


@pytest.mark.parametrize("running", ["torch"], indirect=True)
def test_lab_of_a_living_process_is_left_alone(running: tuple[subprocess.Popen[str], list[int]]) -> None:
    lab, ranks = running
    with Lab(hosts=2) as one, Lab(hosts=2) as other:
        assert not set(one.addresses) & set(other.addresses)
        for mine in (one, other):
            assert mine.run(["hostname"]).stdout == ["host1\n", "host2\n"]
    assert labs_of(lab.pid)
    assert lab.poll() is None
    lab.terminate()
    lab.communicate(timeout=60)
    wait_until_ended(ranks)


def test_exception_takes_everything_away() -> None:
    def fail() -> None:
        with Lab():
            raise ZeroDivisionError(labs_of(os.getpid()))

    with pytest.raises(ZeroDivisionError, match="srl"):
        fail()
    assert (labs_of(os.getpid()), folders(os.getpid())) == ([], [])


def test_lab_that_cannot_be_built_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        assert labs_of(os.getpid())
        raise LabError("no such discipline")

    monkeypatch.setattr(links, "shape", fail)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(LabError, match="no such discipline"), Lab():
        pass
    assert (labs_of(os.getpid()), folders(os.getpid())) == ([], [])
    assert signal.getsignal(signal.SIGTERM) is before


def test_program_that_ends_inside_its_lab_takes_it_away() -> None:
    script = "from benchmarks.netlab import Lab\nlab = Lab().__enter__()\nprint(lab.name)"
    ended = subprocess.run([sys.executable, "-c", script], cwd=ROOT, text=True, capture_output=True, check=True)
    name = ended.stdout.strip()
    assert name.startswith("srl")
    assert name not in subprocess.run(["ip", "link"], text=True, capture_output=True, check=True).stdout


def test_a_second_builder_waits_for_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.netlab.namespaces.PATIENCE_SECONDS", 0.1)
    with building(), pytest.raises(LabError, match="another lab is being built"), Lab():
        pass
    with building():
        pass


def test_signals_wait_until_the_block_has_ended() -> None:
    done = []

    def interrupted() -> None:
        with put_off():
            os.kill(os.getpid(), signal.SIGINT)
            done.append("the block")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert done == ["the block"]
