"""Ranks that use sparse_ring: whoever fails, or leaves while others wait for it, ends the job and is named."""

from __future__ import annotations

import pytest

from tests.launcher.support import Starter

pytestmark = pytest.mark.ranks

SCRIPT = """
import os, sys, torch
import sparse_ring.torch as hvd
hvd.init()
hvd.allreduce(torch.ones(1))
if hvd.rank() == 1:
    {statement}
hvd.allreduce(torch.ones(1000), name="layer.weight")
"""
LOST = "RankLostError: Tensor 'layer.weight': rank 1 has shut down and will not take part."


@pytest.mark.parametrize(
    ("statement", "said", "code"),
    [
        ("os.kill(os.getpid(), 9)", "rank 1 was killed by signal 9 (SIGKILL)", 137),
        ("raise ValueError('mine')", "rank 1 ended with exit code 1 (ValueError: mine)", 1),
        ("os._exit(0)", "rank 1 ended with exit code 0, but without shutdown()", 1),
    ],
)
def test_a_failed_member_is_named(starter: Starter, statement: str, said: str, code: int) -> None:
    run = starter.launch(3, SCRIPT.format(statement=statement))
    result = run.end()
    assert result.stderr.splitlines()[-1] == f"sparse-ring-run: {said}; ending the other ranks"
    assert result.code == code
    run.assert_nothing_left()


@pytest.mark.parametrize("statement", ["sys.exit(0)", "hvd.shutdown(); sys.exit()"])
def test_who_waits_for_a_rank_that_left_is_not_named_alone(starter: Starter, statement: str) -> None:
    run = starter.launch(3, SCRIPT.format(statement=statement))
    result = run.end()
    said = result.stderr.splitlines()[-1]
    assert said.startswith("sparse-ring-run: rank 1 left the job while others waited for it (it ")
    assert said.endswith(f" ended with exit code 1 ({LOST}); ending the other ranks")
    assert result.code == 1
    run.assert_nothing_left()


def test_the_traceback_comes_whole_and_without_messages_of_mpi(starter: Starter) -> None:
    result = starter.launch(2, SCRIPT.format(statement="raise ValueError('mine')")).end()
    lines = result.stderr.splitlines()
    assert lines[0] == "[rank 1] Traceback (most recent call last):"
    assert lines[-2] == "[rank 1] ValueError: mine"
    assert all(line.startswith("[rank 1]") for line in lines[:-1])
