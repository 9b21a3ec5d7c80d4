"""The command line, the ranks' environment, and how little the launcher loads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sparse_ring.launcher.main import main, parser, rank_environment
from tests.launcher.support import LAUNCHER, Starter

FROZEN = {
    "-h", "--help", "-np", "--num-proc", "--verbose", "--dry-run", "-cb", "--check-build",
    "-H", "--hosts", "--hostfile", "--network-interface", "-p", "--ssh-port", "-i", "--ssh-identity-file",
    "--start-timeout", "-x", "--output-filename", "--mpi-args", "--report",
    "--fusion-threshold-mb", "--cycle-time-ms", "--cache-capacity", "--stall-check", "--no-stall-check",
    "--stall-check-warning-time-seconds", "--stall-check-shutdown-time-seconds", "--log-level", "--timeline-filename",
}  # fmt: skip


def test_command_line_is_frozen() -> None:
    assert {name for action in parser()._actions for name in action.option_strings} == FROZEN


def test_everything_after_the_first_word_is_the_command() -> None:
    options = parser().parse_args(["-np", "4", "python", "train.py", "--verbose", "-np", "2", "--", "x"])
    assert (options.num_proc, options.verbose) == (4, False)
    assert options.command == ["python", "train.py", "--verbose", "-np", "2", "--", "x"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["python"], "the following arguments are required: -np/--num-proc"),
        (
            ["-np", "0", "python"],
            "argument -np/--num-proc: '0' is not a number of ranks; give a whole number from 1 up",
        ),
        (["-np", "2"], "no command was given, as in: sparse-ring-run -np 4 python train.py"),
        (["-np", "2", "--"], "no command was given, as in: sparse-ring-run -np 4 python train.py"),
        (["-np", "2", "no_program"], "no_program is not a program that can be found"),
        (["-np", "2", "no.py"], "no.py is not a program that can be found; did you mean: python no.py"),
        (["--np", "2", "python"], "unrecognized arguments: --np"),
    ],
)
def test_wrong_command_lines_are_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        main(arguments)
    assert exit_info.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"sparse-ring-run: error: {said}"


def test_help_shows_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        main(["-h"])
    assert exit_info.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith("usage: sparse-ring-run -np N [option ...] command [argument ...]\n")
    assert "  sparse-ring-run -np 4 python train.py --lr 0.1\n" in shown


@pytest.mark.parametrize(("cores", "ranks", "threads"), [(8, 2, "4"), (8, 3, "2"), (2, 4, "1")])
def test_cores_are_split_among_ranks(cores: int, ranks: int, threads: str) -> None:
    assert rank_environment({"PATH": "/v/bin"}, ranks, cores, "/v/bin/python") == {
        "PATH": "/v/bin", "SPARSE_RING_LAUNCHER": "1", "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": threads,
    }  # fmt: skip


def test_threads_of_the_user_stay() -> None:
    assert rank_environment({"OMP_NUM_THREADS": "7"}, 2, 8, "/v/bin/python")["OMP_NUM_THREADS"] == "7"


def test_environment_that_is_not_activated_comes_first_on_path() -> None:
    assert rank_environment({"PATH": "/a:/b"}, 1, 1, "/v/bin/python")["PATH"] == "/v/bin:/a:/b"
    assert rank_environment({"PATH": "/a:/v/bin"}, 1, 1, "/v/bin/python")["PATH"] == "/a:/v/bin"


def test_launcher_loads_neither_torch_nor_numpy_nor_mpi() -> None:
    code = (
        "import sys, sparse_ring.launcher.main, sparse_ring.launcher.rank\n"
        "print([name for name in ('torch', 'numpy', 'mpi4py', 'rich') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


@pytest.mark.ranks
def test_ranks_find_what_is_promised(starter: Starter) -> None:
    script = (
        "import json, os, sys\n"
        "names = ('SPARSE_RING_LAUNCHER', 'PYTHONUNBUFFERED', 'OMP_NUM_THREADS', 'MINE')\n"
        "from mpi4py import MPI\n"
        "print(json.dumps([MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size, sys.argv[3:], [os.environ.get(n) for n in names]]))"
    )
    result = starter.launch(2, script, "--lr", "a b", OMP_NUM_THREADS="3", MINE="m").end()
    assert result.code == 0
    told = sorted(json.loads(line.partition("] ")[2]) for line in result.stdout.splitlines())
    assert told == [[rank, 2, ["--lr", "a b"], ["1", "1", "3", "m"]] for rank in (0, 1)]


@pytest.mark.ranks
def test_input_goes_to_rank_0(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text("import sys\nprint(repr(sys.stdin.read()))\n")
    command = [*LAUNCHER, "-np", "2", sys.executable, str(path)]
    result = subprocess.run(command, input="hello", capture_output=True, text=True, check=True, timeout=60)
    assert sorted(result.stdout.splitlines()) == ["[rank 0] 'hello'", "[rank 1] ''"]


@pytest.mark.ranks
def test_verbose_says_what_runs(starter: Starter) -> None:
    result = starter.launch(1, "print('x')", options=["--verbose"]).end()
    lines = result.stderr.splitlines()
    assert "mpiexec" in lines[0]
    assert lines[0].startswith("sparse-ring-run: ")
    assert lines[1].startswith("sparse-ring-run: rank 0 is process ")
    assert lines[2:] == ["sparse-ring-run: rank 0 ended with exit code 0"]
    assert (result.stdout, result.code) == ("[rank 0] x\n", 0)


@pytest.mark.ranks
def test_mpi_that_fails_before_the_ranks_run_speaks(tmp_path: Path, starter: Starter) -> None:
    (tmp_path / "mpiexec").write_text("#!/bin/sh\ncase $1 in --version) echo HYDRA;; *) echo no hosts; exit 7;; esac\n")
    (tmp_path / "mpiexec").chmod(0o755)
    (tmp_path / "python").symlink_to(sys.executable)
    code = (
        "import sys, sparse_ring.launcher.main as main, sparse_ring.launcher.mpi as mpi\n"
        f"main.find_mpi = lambda environment, hosts: mpi.find_mpi(environment, {str(tmp_path / 'python')!r})\n"
        "sys.exit(main.main(sys.argv[1:]))"
    )
    result = starter.start([sys.executable, "-c", code, "-np", "2"], "").end()
    assert (result.stderr, result.code) == ("sparse-ring-run: mpiexec ended with exit code 7\n[mpi] no hosts\n", 7)
