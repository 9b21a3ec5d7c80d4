"""Options that become variables, ``--dry-run``, ``--check-build`` and the wait for ranks that do not start."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from sparse_ring.config import Config
from sparse_ring.errors import SparseRingError
from sparse_ring.launcher.check import check_build
from sparse_ring.launcher.main import describe, main, plan
from sparse_ring.launcher.options import SETTINGS, chosen_variables, mpi_arguments, parser
from tests.launcher.support import LAUNCHER, Starter


def chosen(*words: str, **environment: str) -> dict[str, str]:
    return chosen_variables(parser().parse_args(["-np", "1", *words, "python"]), environment)


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        ("--fusion-threshold-mb 2.5", "FUSION_THRESHOLD", "2621440"),
        ("--cycle-time-ms 0.5", "CYCLE_TIME", "0.5"),
        ("--cache-capacity 7", "CACHE_CAPACITY", "7"),
        ("--stall-check-warning-time-seconds 3", "STALL_CHECK_TIME_SECONDS", "3"),
        ("--stall-check-shutdown-time-seconds 0", "STALL_SHUTDOWN_TIME_SECONDS", "0"),
        ("--stall-check", "STALL_CHECK_DISABLE", "0"),
        ("--no-stall-check", "STALL_CHECK_DISABLE", "1"),
        ("--log-level debug", "LOG_LEVEL", "debug"),
        ("--timeline-filename /t/trace.json", "TIMELINE", "/t/trace.json"),
    ],
)
def test_option_becomes_a_variable(words: str, name: str, value: str) -> None:
    assert chosen(*words.split()) == {f"SPARSE_RING_{name}": value}


def test_settings_are_fields_of_config() -> None:
    assert {setting.field for setting in SETTINGS} <= set(Config.__dataclass_fields__)


def test_timeline_lies_where_the_launcher_was_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert chosen("--timeline-filename", "t.json") == {"SPARSE_RING_TIMELINE": f"{tmp_path}/t.json"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--fusion-threshold-mb x", "--fusion-threshold-mb is 'x', but the variable must be a number of bytes >= 0."),
        ("--cycle-time-ms -1", "--cycle-time-ms is '-1', but the variable must be milliseconds >= 0."),
        ("-x NOPE", "-x NOPE: this variable is not set; give its value with -x NOPE=VALUE."),
    ],
)
def test_values_that_cannot_be_are_named(words: str, said: str) -> None:
    with pytest.raises(SparseRingError, match=f"^{re.escape(said)}$"):
        chosen(*words.replace(" -1", "=-1").split())


def test_variables_by_name_and_by_value() -> None:
    assert chosen("-x", "A=b=c", "-x", "D", "-x", "E=", D="d") == {"A": "b=c", "D": "d", "E": ""}
    assert chosen("--log-level", "info", "-x", "SPARSE_RING_LOG_LEVEL=debug") == {"SPARSE_RING_LOG_LEVEL": "debug"}


def test_mpi_arguments_are_split_as_by_a_shell() -> None:
    assert mpi_arguments("-a 'b c' -d") == ("-a", "b c", "-d")
    with pytest.raises(
        SparseRingError, match=r"^--mpi-args \"a 'b\" cannot be split into words: No closing quotation\.$"
    ):
        mpi_arguments("a 'b")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("-p 0", "argument -p/--ssh-port: '0' is not a port; give a whole number from 1 to 65535"),
        (
            "-i a\tb",
            "argument -i/--ssh-identity-file: 'a\\tb' has blanks, which MPI cannot hand to ssh; give a path without",
        ),
        ("--start-timeout 0", "argument --start-timeout: '0' is not a time; give seconds above 0"),
        ("-x =1", "argument -x: '=1' is not a variable; give VAR or VAR=VALUE"),
        ("-H a --hostfile b", "argument --hostfile: not allowed with argument -H/--hosts"),
    ],
)
def test_wrong_options_are_refused(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_info:
        main(["-np", "1", *words.split(" "), "python"])
    assert exit_info.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"sparse-ring-run: error: {said}"


def fake_mpi(folder: Path, body: str, version: str = "HYDRA") -> dict[str, str]:
    """Return an environment in which mpiexec is a script and, for :func:`plan`, comes before the real one."""
    (folder / "mpiexec").write_text(f"#!/bin/sh\ncase $1 in --version) echo '{version}';; *) {body};; esac\n")
    (folder / "mpiexec").chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def planned(folder: Path, monkeypatch: pytest.MonkeyPatch, *words: str, version: str = "HYDRA") -> list[str]:
    """Return the words of what ``--dry-run`` would print."""
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    given = fake_mpi(folder, "exit 7", version)
    run = plan(parser().parse_args([*words, "train"]), ["train", "a b"], given)
    return shlex.split(describe(run, given))


def test_dry_run_on_one_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)))
    words = planned(tmp_path, monkeypatch, "-np", "2", "-H", "localhost:4", "-x", "A=b c", "--log-level", "info")
    assert words == [
        "env", "A=b c", "OMP_NUM_THREADS=3", "PYTHONUNBUFFERED=1", "SPARSE_RING_LAUNCHER=1", "SPARSE_RING_LOG_LEVEL=info",
        f"{tmp_path}/mpiexec", "-n", "2", f"{tmp_path}/python", "-m", "sparse_ring.launcher.rank",
        "--socket", "PATH", "--", "train", "a b",
    ]  # fmt: skip


def test_dry_run_on_several_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["-np", "2", "-H", "192.0.2.1:1,192.0.2.2:4", "--network-interface", "lo", "-p", "22", "--mpi-args"]
    words = planned(tmp_path, monkeypatch, *options, "-v -w")
    assert words == [
        "env", "FI_TCP_IFACE=lo", "GLOO_SOCKET_IFNAME=lo", "HYDRA_LAUNCHER=ssh", "HYDRA_LAUNCHER_EXTRA_ARGS=-p 22",
        "NCCL_SOCKET_IFNAME=lo", "PYTHONUNBUFFERED=1", "SPARSE_RING_LAUNCHER=1", "UCX_NET_DEVICES=lo",
        f"{tmp_path}/mpiexec", "-iface", "lo", "-hosts", "192.0.2.1:1,192.0.2.2:1", "-v", "-w", "-n", "2",
        f"{tmp_path}/python", "-m", "sparse_ring.launcher.rank", "--connect", "127.0.0.1:PORT", "--", "train", "a b",
    ]  # fmt: skip


def test_open_mpi_is_told_the_names_of_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = ["-np", "1", "-H", "192.0.2.1", "--network-interface", "lo", "-x", "MINE=1"]
    words = planned(tmp_path, monkeypatch, *hosts, version="mpiexec (Open MPI) 5.0.11")
    names = [name for option, name in itertools.pairwise(words) if option == "-x"]
    assert names == ["GLOO_SOCKET_IFNAME", "MINE", "NCCL_SOCKET_IFNAME", "PATH", "PYTHONUNBUFFERED",
                     "SPARSE_RING_LAUNCHER", "UCX_NET_DEVICES"]  # fmt: skip


def test_dry_run_starts_nothing(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("localhost slots=2\n")
    command = [*LAUNCHER, "-np", "2", "--hostfile", "hosts", "--dry-run", "touch", "made"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert result.stdout.startswith("env ")
    assert result.stdout.endswith(" -m sparse_ring.launcher.rank --socket PATH -- touch made\n")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("-np 3 -H localhost:2", "3 ranks do not fit on localhost:2, which have 2 slots; give more slots or hosts."),
        ("-np 1 -x NOPE", "-x NOPE: this variable is not set; give its value with -x NOPE=VALUE."),
    ],
)
def test_what_cannot_be_is_said(words: str, said: str) -> None:
    result = subprocess.run([*LAUNCHER, *words.split(), "true"], capture_output=True, text=True, check=False)
    assert (result.stdout, result.stderr, result.returncode) == ("", f"sparse-ring-run: {said}\n", 1)


def test_check_build_of_this_environment() -> None:
    result = subprocess.run([*LAUNCHER, "--check-build"], capture_output=True, text=True, check=False)
    lines = result.stdout.splitlines()
    assert lines[0].startswith("sparse_ring 0.1.0 on Python 3.")
    marks = {line[4:].partition(":")[0]: line[1] for line in lines[2:]}
    assert list(marks) == [
        "PyTorch", "CUDA for PyTorch", "MPI library for mpi4py", "native kernels", "launcher of ranks", "Slurm",
    ]  # fmt: skip
    assert {marks[name] for name in ("PyTorch", "MPI library for mpi4py", "native kernels", "launcher of ranks")} == {
        "x"
    }
    assert any(line.startswith("[x] native kernels: scalar") for line in lines)
    assert result.returncode == 0


def test_check_build_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "python").write_text("#!/bin/sh\necho 'first'>&2; echo 'no torch here' >&2; exit 1\n")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    text, works = check_build({"PATH": str(tmp_path)})
    assert text.splitlines()[2:] == [
        "[ ] PyTorch: no torch here",
        "[ ] CUDA for PyTorch: no torch here",
        "[ ] MPI library for mpi4py: no torch here",
        "[ ] native kernels: no torch here",
        (
            f"[ ] launcher of ranks: No mpiexec was found beside {tmp_path}/python or on PATH. Install one with: "
            "pip install sparse-ring[mpich]"
        ),
        "[ ] Slurm: no srun on PATH",
    ]
    assert not works


@pytest.mark.ranks
def test_ranks_that_do_not_start_end_the_job(tmp_path: Path, starter: Starter) -> None:
    fake_mpi(tmp_path, "echo waiting >&2; exec sleep 600")
    (tmp_path / "python").symlink_to(sys.executable)
    code = (
        "import sys, sparse_ring.launcher.main as main, sparse_ring.launcher.mpi as mpi\n"
        f"main.find_mpi = lambda environment, hosts: mpi.find_mpi(environment, {str(tmp_path / 'python')!r})\n"
        "sys.exit(main.main(sys.argv[1:]))"
    )
    result = starter.start([sys.executable, "-c", code, "-np", "2", "--start-timeout", "0.5"], "").end()
    assert result.stderr.splitlines() == [
        (
            "sparse-ring-run: ranks [0, 1] have not started within --start-timeout 0.5 s; see MPI's messages, and whether "
            "their hosts can be reached"
        ),
        "[mpi] waiting",
    ]
    assert result.code == 1
