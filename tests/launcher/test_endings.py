"""However ranks end, the launcher names the first that failed, returns its code and leaves no process behind."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
from pathlib import Path

import pytest

from tests.launcher.support import LAUNCHER, MPIEXEC, Starter

pytestmark = [pytest.mark.ranks, pytest.mark.faults]

MPI_SCRIPT = textwrap.dedent(
    """
    import os, signal, sys, time
    from pathlib import Path
    from mpi4py import MPI
    rank = MPI.COMM_WORLD.rank
    MPI.COMM_WORLD.Barrier()
    (Path(sys.argv[2]) / f"{rank}.new").write_text(str(os.getpid()))
    (Path(sys.argv[2]) / f"{rank}.new").rename(Path(sys.argv[2]) / str(rank))
    """
)
PLAIN_SCRIPT = MPI_SCRIPT.replace("from mpi4py import MPI\n", "").replace(
    "rank = MPI.COMM_WORLD.rank\nMPI.COMM_WORLD.Barrier()", 'rank = int(os.environ["PMI_RANK"])'
)
SLEEP = "\ntime.sleep(600)\n"


def last_line(text: str) -> str:
    return text.splitlines()[-1]


@pytest.mark.parametrize(
    ("statement", "said", "code"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "rank 1 was killed by signal 9 (SIGKILL)", 137),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "rank 1 was killed by signal 11 (SIGSEGV)", 139),
        ("os._exit(3)", "rank 1 ended with exit code 3", 3),
    ],
)
def test_failed_mpi_rank_is_named_and_the_others_are_ended(
    starter: Starter, statement: str, said: str, code: int
) -> None:
    run = starter.launch(3, MPI_SCRIPT + f"if rank == 1:\n    {statement}\n" + SLEEP)
    result = run.end()
    assert result.stderr == f"sparse-ring-run: {said}; ending the other ranks\n"
    assert (result.stdout, result.code) == ("", code)
    run.assert_nothing_left()


def test_uncaught_exception_is_shown_and_ends_the_job(starter: Starter) -> None:
    run = starter.launch(2, PLAIN_SCRIPT + "if rank == 1:\n    raise KeyError('lost')\n" + SLEEP)
    result = run.end()
    lines = result.stderr.splitlines()
    assert lines[0] == "[rank 1] Traceback (most recent call last):"
    assert lines[-2:] == [
        "[rank 1] KeyError: 'lost'",
        "sparse-ring-run: rank 1 ended with exit code 1; ending the other ranks",
    ]
    assert result.code == 1
    run.assert_nothing_left()


def test_command_that_ends_at_once(starter: Starter) -> None:
    for _ in range(5):
        result = starter.start([*LAUNCHER, "-np", "2", "true"], "").end()
        assert (result.stdout, result.stderr, result.code) == ("", "", 0)


def test_sys_exit_gives_its_code(starter: Starter) -> None:
    run = starter.launch(2, PLAIN_SCRIPT + "if rank == 0:\n    sys.exit(3)\n" + SLEEP)
    result = run.end()
    assert (result.code, result.stderr) == (
        3,
        "sparse-ring-run: rank 0 ended with exit code 3; ending the other ranks\n",
    )
    run.assert_nothing_left()


def test_mpi_abort_names_the_rank_that_called_it(starter: Starter) -> None:
    run = starter.launch(3, MPI_SCRIPT + "if rank == 2:\n    MPI.COMM_WORLD.Abort(5)\n" + SLEEP)
    result = run.end()
    assert last_line(result.stderr) == "sparse-ring-run: rank 2 ended with exit code 5 (MPI_Abort)"
    assert result.code == 5
    run.assert_nothing_left()


def test_rank_that_ignores_sigterm_is_killed(starter: Starter) -> None:
    run = starter.launch(
        2, PLAIN_SCRIPT + "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nif rank == 1:\n    os._exit(4)\n" + SLEEP
    )
    assert run.end().code == 4
    run.assert_nothing_left()


def test_rank_gets_sigterm_and_time_to_act_on_it(starter: Starter) -> None:
    handler = "def finish(*_):\n    time.sleep(1)\n    print('saved')\n    os._exit(0)\n"
    act = "signal.signal(signal.SIGTERM, finish)\nif rank == 1:\n    time.sleep(1)\n    os._exit(4)\n"
    result = starter.launch(2, PLAIN_SCRIPT + handler + act + SLEEP).end()
    assert (result.stdout, result.code) == ("[rank 0] saved\n", 4)


def test_children_of_ranks_are_ended_even_in_sessions_of_their_own(starter: Starter) -> None:
    child = (
        "import subprocess\n"
        "subprocess.Popen([sys.executable, '-c', 'import time, signal; signal.signal(15, signal.SIG_IGN);"
        " time.sleep(600)', sys.argv[1], 'helper'], start_new_session=True)\n"
    )
    run = starter.launch(2, PLAIN_SCRIPT + child + SLEEP)
    run.wait_for(lambda: len(run.pids("helper")) == 2)
    os.kill(run.wait_for_file(starter.folder, 2)[0], signal.SIGKILL)
    assert run.end().code == 137
    run.assert_nothing_left()


def test_early_exit_0_is_no_error(starter: Starter) -> None:
    script = PLAIN_SCRIPT + "if rank == 1:\n    os._exit(0)\ntime.sleep(1)\nprint('done')\n"
    result = starter.launch(2, script).end()
    assert (result.stdout, result.stderr, result.code) == ("[rank 0] done\n", "", 0)


def test_early_exit_0_without_finalize_is_told_to_mpi_in_the_end(starter: Starter) -> None:
    main = (
        "import sys, sparse_ring.launcher.job as job, sparse_ring.launcher.main as main\n"
        "job.EARLY_NOTE_SECONDS, job.EARLY_SECONDS = 1.0, 2.0\n"
        "sys.exit(main.main(sys.argv[1:]))"
    )
    script = MPI_SCRIPT + "if rank == 1:\n    os._exit(0)\n"
    run = starter.start([sys.executable, "-c", main, "-np", "3"], script)
    result = run.end()
    assert result.stderr.splitlines() == [
        "sparse-ring-run: ranks [1] ended 1 s ago, ranks [0, 2] still run",
        "sparse-ring-run: MPI ended the job: ranks [1] ended without MPI_Finalize",
    ]
    assert result.code == 1
    run.assert_nothing_left()


@pytest.mark.parametrize("which", ["stub", "supervisor"])
def test_killed_stub_ends_the_job(starter: Starter, which: str) -> None:
    run = starter.launch(2, MPI_SCRIPT + SLEEP)
    run.wait_for_file(starter.folder, 2)
    pids = run.pids("sparse_ring.launcher.rank")
    supervisors = [pid for pid in pids if parent(pid) in pids]
    stubs = [parent(pid) for pid in supervisors]
    assert len(set(stubs)) == 2
    os.kill({"stub": stubs, "supervisor": supervisors}[which][0], signal.SIGKILL)
    result = run.end()
    assert result.code == {"stub": 1, "supervisor": 137}[which]
    said = {
        "stub": "was ended by MPI or from outside",
        "supervisor": "was ended, as the process that watches it was killed",
    }
    assert said[which] in last_line(result.stderr)
    run.assert_nothing_left()


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_killed_mpiexec_ends_the_job(starter: Starter) -> None:
    run = starter.launch(2, MPI_SCRIPT + SLEEP)
    run.wait_for_file(starter.folder, 2)
    os.kill(run.pids(f"{MPIEXEC}\0-n")[0], signal.SIGKILL)
    assert run.end().code == 1
    run.assert_nothing_left()


def test_command_that_cannot_be_started(starter: Starter, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/nowhere/interpreter\n")
    program.chmod(0o755)
    result = starter.start([*LAUNCHER, "-np", "1", str(program)], "").end()
    assert result.stderr == f"sparse-ring-run: rank 0: {program} could not be started: No such file or directory\n"
    assert result.code == 127


def test_plain_mpiexec_with_a_killed_rank_leaves_nothing(starter: Starter) -> None:
    run = starter.start([MPIEXEC, "-n", "3"], MPI_SCRIPT + SLEEP)
    os.kill(run.wait_for_file(starter.folder, 3)[1], signal.SIGKILL)
    assert run.end().code == 9
    run.assert_nothing_left()
