"""Ranks started with srun in an allocation of a real Slurm."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from sparse_ring.launcher.slurm import inside_allocation
from tests.launcher.slurm import Slurm
from tests.launcher.support import LAUNCHER, Run, Starter
from tests.launcher.test_endings import MPI_SCRIPT, PLAIN_SCRIPT, SLEEP

pytestmark = pytest.mark.ranks


def launch(starter: Starter, slurm: Slurm, ranks: int, script: str, *options: str) -> Run:
    prefix = ["salloc", "--quiet", "-n", "2", *LAUNCHER, "-np", str(ranks), *options]
    # Slurm kills at once what a killed launcher leaves, its folder stays.
    return starter.start(prefix, script, TMPDIR=str(starter.folder), **slurm.environment)


def test_allocation_is_seen_in_the_environment() -> None:
    assert inside_allocation({"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n1"})
    assert not inside_allocation({"SLURM_JOB_ID": "1"})
    assert not inside_allocation({})


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_work_together(starter: Starter, slurm: Slurm, ranks: int) -> None:
    script = (
        "import os, torch\nimport sparse_ring.torch as hvd\nhvd.init()\n"
        "total = hvd.allreduce(torch.arange(3.0) * (hvd.rank() + 1), op=hvd.Sum).tolist()\n"
        "print(hvd.rank(), hvd.size(), total, 'SLURM_STEP_ID' in os.environ)\n"
    )
    result = launch(starter, slurm, ranks, script).end()
    total = [0.0, float(sum(range(ranks + 1))), float(2 * sum(range(ranks + 1)))]
    assert sorted(result.stdout.splitlines()) == [f"[rank {r}] {r} {ranks} {total} True" for r in range(ranks)]
    assert (result.stderr, result.code) == ("", 0)


def test_input_goes_to_rank_0(starter: Starter, slurm: Slurm) -> None:
    path = starter.folder / "script.py"
    path.write_text("import sys\nprint(repr(sys.stdin.read()))\n")
    result = subprocess.run(
        ["salloc", "--quiet", "-n", "2", *LAUNCHER, "-np", "2", sys.executable, str(path)],
        input="hello", capture_output=True, text=True, check=True, timeout=60, env=os.environ | slurm.environment,
    )  # fmt: skip
    assert sorted(result.stdout.splitlines()) == ["[rank 0] 'hello'", "[rank 1] ''"]


@pytest.mark.parametrize(
    ("statement", "said", "code"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "rank 1 was killed by signal 9 (SIGKILL)", 137),
        ("os._exit(3)", "rank 1 ended with exit code 3", 3),
        ("MPI.COMM_WORLD.Abort(5)", "rank 1 ended with exit code 5 (MPI_Abort)", 5),
    ],
)
def test_failed_rank_is_named(starter: Starter, slurm: Slurm, statement: str, said: str, code: int) -> None:
    run = launch(starter, slurm, 2, MPI_SCRIPT + f"if rank == 1:\n    {statement}\n" + SLEEP)
    result = run.end()
    assert result.stderr.splitlines()[-1].startswith(f"sparse-ring-run: {said}")
    assert result.code == code
    run.assert_nothing_left()


def test_early_end_with_0_leaves_the_others(starter: Starter, slurm: Slurm) -> None:
    script = PLAIN_SCRIPT + "if rank == 1:\n    os._exit(0)\ntime.sleep(1)\nprint('done')\n"
    result = launch(starter, slurm, 2, script).end()
    assert (result.stdout, result.stderr, result.code) == ("[rank 0] done\n", "", 0)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGKILL])
def test_signal_to_the_launcher_ends_all(starter: Starter, slurm: Slurm, signum: signal.Signals) -> None:
    run = launch(starter, slurm, 2, MPI_SCRIPT + SLEEP)
    run.wait_for_file(starter.folder, 2)
    os.kill(run.pids("sparse_ring.launcher.main")[0], signum)
    run.end()
    run.assert_nothing_left()
