"""Commands on the hosts: what each rank finds, and how a job ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.netlab import Lab
from tests.netlab.endings import pids_in, wait_until_ended

TELL = """
import json, os, socket
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "OMP_NUM_THREADS", "MINE")
print(json.dumps([socket.gethostname(), *(os.environ[name] for name in names)]))
"""
MPI_SUM = """
import os, socket
from mpi4py import MPI
world = MPI.COMM_WORLD
print(socket.gethostname(), world.allreduce(world.rank + 1), os.environ["MINE"])
"""
TORCH_SUM = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
print(total.item())
dist.destroy_process_group()
"""
REACH = """
import os, socket, time
if os.environ["RANK"] == "0":
    server = socket.create_server((os.environ["MASTER_ADDR"], 29500))
    server.settimeout(float(os.environ["PATIENCE"]))
    server.accept()
else:
    while True:
        try:
            socket.create_connection((os.environ["MASTER_ADDR"], 29500), 0.5)
            break
        except OSError:
            time.sleep(0.1)
"""


def python(script: str) -> list[str]:
    return [sys.executable, "-c", script]


def test_ranks_find_what_torch_reads(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(9)))
    result = lab.run(python(TELL), ranks_per_host=2, environment={"MINE": "a b"})
    assert result.returncode == 0, result.stderr
    assert [json.loads(text) for text in result.stdout] == [
        [f"host{1 + rank // 2}", str(rank), "4", str(rank % 2), "2", lab.addresses[0], "2", "a b"] for rank in range(4)
    ]


def test_threads_that_are_set_stay(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert lab.run(["sh", "-c", "echo $OMP_NUM_THREADS"]).stdout == ["7\n", "7\n"]


@pytest.mark.ranks
def test_ranks_work_together_under_torch(lab: Lab) -> None:
    result = lab.run(python(TORCH_SUM), environment={"PYTHONWARNINGS": "ignore"})
    assert (result.returncode, result.stdout) == (0, ["3.0\n", "3.0\n"]), result.stderr


@pytest.mark.ranks
def test_ranks_work_together_under_mpi(lab: Lab) -> None:
    result = lab.run(python(MPI_SUM), starter="mpi", ranks_per_host=2, environment={"MINE": "a b"})
    assert result.returncode == 0, result.stderr
    assert result.stdout == ["host1 10 a b\n"] * 2 + ["host2 10 a b\n"] * 2
    assert all(counted.sent_payload_bytes > 0 for counted in result.traffic)


def test_first_failure_ends_the_others_and_gives_the_exit_code(lab: Lab, tmp_path: Path) -> None:
    script = f"""
        echo $$ > {tmp_path}/$RANK
        [ $RANK = 0 ] && sleep 1000
        until [ -s {tmp_path}/0 ]; do sleep 0.05; done
        echo broken >&2; exit 3
    """
    result = lab.run(["sh", "-c", script])
    assert (result.returncode, result.stderr) == (3, "[rank 1] broken\n")
    wait_until_ended(pids_in(tmp_path, 2))


def test_signal_that_kills_a_rank_is_its_exit_code(lab: Lab) -> None:
    assert lab.run(["sh", "-c", "[ $RANK = 0 ] && kill -9 $$; exec sleep 1000"]).returncode == 137


@pytest.mark.ranks
def test_exit_code_under_mpi(lab: Lab) -> None:
    script = "from mpi4py import MPI\nimport os, time\nos._exit(4) if MPI.COMM_WORLD.rank else time.sleep(1000)"
    result = lab.run(python(script), starter="mpi")
    assert result.returncode == 4
    assert "rank 1 on host2 ended with exit code 4" in result.stderr


@pytest.mark.parametrize(("starter", "seconds"), [("torch", 4), pytest.param("mpi", 12, marks=pytest.mark.ranks)])
def test_time_limit_ends_all_and_shows_what_was_said(lab: Lab, starter: str, seconds: int, tmp_path: Path) -> None:
    script = f"echo $$ > {tmp_path}/$$; echo here; exec sleep 1000"
    with pytest.raises(subprocess.TimeoutExpired) as caught:
        lab.run(["sh", "-c", script], starter=starter, timeout=seconds)
    assert caught.value.output == "here\nhere\n"
    wait_until_ended(pids_in(tmp_path, 2))


def test_what_a_rank_leaves_behind_is_ended(lab: Lab, tmp_path: Path) -> None:
    result = lab.run(["sh", "-c", f"setsid sh -c 'echo $$ > {tmp_path}/$$; exec sleep 1000' & sleep 1; echo end"])
    assert (result.returncode, result.stdout) == (0, ["end\n", "end\n"])
    wait_until_ended(pids_in(tmp_path, 2))


def test_cable_is_pulled_and_put_back(lab: Lab) -> None:
    lab.down(2)
    alone = lab.run(python(REACH), environment={"PATIENCE": "3"})
    assert alone.returncode == 1
    assert "TimeoutError" in alone.stderr
    lab.up(2)
    reached = lab.run(python(REACH), environment={"PATIENCE": "60"})
    assert reached.returncode == 0, reached.stderr


def test_ranks_lines_are_shown_with_their_numbers(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    lab.run(["sh", "-c", "echo out; echo error >&2"], show=True)
    shown = capsys.readouterr()
    assert sorted(shown.out.splitlines()) == ["[rank 0] out", "[rank 1] out"]
    assert sorted(shown.err.splitlines()) == ["[rank 0] error", "[rank 1] error"]


def test_wrong_arguments_are_named(lab: Lab) -> None:
    with pytest.raises(ValueError, match="starter 'slurm' is none of torch, mpi"):
        lab.run(["true"], starter="slurm")
    with pytest.raises(ValueError, match="at least 1, not 0"):
        lab.run(["true"], ranks_per_host=0)
    with pytest.raises(ValueError, match="hosts 1 to 2, not 3"):
        lab.down(3)
