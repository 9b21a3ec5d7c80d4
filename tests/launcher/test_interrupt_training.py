"""Ctrl-C while ranks train with sparse_ring: everything ends, nothing is left."""

from __future__ import annotations

import os
import signal

import pytest

from tests.launcher.support import Starter

pytestmark = [pytest.mark.ranks, pytest.mark.faults]

SCRIPT = """
import os, sys, time, torch
from pathlib import Path
import sparse_ring.torch as hvd
hvd.init()
(Path(sys.argv[2]) / f"{hvd.rank()}.new").write_text(str(os.getpid()))
(Path(sys.argv[2]) / f"{hvd.rank()}.new").rename(Path(sys.argv[2]) / str(hvd.rank()))
while True:
    hvd.allreduce(torch.ones(1000), name="gradient")
"""


def test_interrupt_of_the_launcher_ends_training(starter: Starter) -> None:
    run = starter.launch(2, SCRIPT)
    run.wait_for_file(starter.folder, 2)
    os.kill(run.process.pid, signal.SIGINT)
    assert run.end().code == 130
    run.assert_nothing_left()
