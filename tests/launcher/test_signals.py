"""Signals to the launcher end everything, and so does its own sudden death."""

from __future__ import annotations

import os
import signal

import pytest

from tests.launcher.support import Starter
from tests.launcher.test_endings import MPI_SCRIPT, PLAIN_SCRIPT, SLEEP

pytestmark = [pytest.mark.ranks, pytest.mark.faults]

STUBBORN = "for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):\n    signal.signal(number, signal.SIG_IGN)\n"


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_to_the_launcher(starter: Starter, signum: signal.Signals) -> None:
    run = starter.launch(2, MPI_SCRIPT + SLEEP)
    run.wait_for_file(starter.folder, 2)
    os.kill(run.process.pid, signum)
    result = run.end()
    assert result.stderr == f"sparse-ring-run: {signum.name}: ending all ranks\n"
    assert (result.stdout, result.code) == ("", 128 + signum)
    run.assert_nothing_left()


def test_control_c_goes_to_the_whole_group(starter: Starter) -> None:
    run = starter.launch(2, MPI_SCRIPT + SLEEP)
    run.wait_for_file(starter.folder, 2)
    os.killpg(run.process.pid, signal.SIGINT)
    result = run.end()
    assert (result.stderr, result.code) == ("sparse-ring-run: SIGINT: ending all ranks\n", 130)
    run.assert_nothing_left()


def test_second_control_c_kills_stubborn_ranks(starter: Starter) -> None:
    run = starter.launch(2, "import signal\n" + STUBBORN + PLAIN_SCRIPT + SLEEP)
    run.wait_for_file(starter.folder, 2)
    os.kill(run.process.pid, signal.SIGINT)
    assert run.process.stderr is not None
    assert run.process.stderr.readline() == "sparse-ring-run: SIGINT: ending all ranks\n"
    os.kill(run.process.pid, signal.SIGINT)
    assert run.end().code == 130
    run.assert_nothing_left()


def test_signal_before_the_ranks_are_there(starter: Starter) -> None:
    run = starter.launch(2, PLAIN_SCRIPT + SLEEP)
    # Not any child: one that asks mpiexec for its version comes before, when a signal still ends the launcher at once.
    run.wait_for(lambda: bool(run.pids("mpiexec")))
    os.kill(run.process.pid, signal.SIGTERM)
    assert run.end().code == 143
    run.assert_nothing_left()


@pytest.mark.parametrize("script", [MPI_SCRIPT, PLAIN_SCRIPT + STUBBORN])
def test_killed_launcher_leaves_nothing(starter: Starter, script: str) -> None:
    run = starter.launch(2, script + SLEEP)
    run.wait_for_file(starter.folder, 2)
    os.kill(run.process.pid, signal.SIGKILL)
    assert run.end().code == -signal.SIGKILL
    run.assert_nothing_left()


def test_reader_that_goes_away_ends_the_job(starter: Starter) -> None:
    run = starter.launch(1, PLAIN_SCRIPT + "while True:\n    print('line', flush=True)\n    time.sleep(0.01)\n")
    run.wait_for_file(starter.folder, 1)
    assert run.process.stdout is not None
    run.process.stdout.close()
    assert run.process.wait(60) == 128 + signal.SIGPIPE
    run.assert_nothing_left()
