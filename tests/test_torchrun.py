"""Ranks that torchrun starts: no MPI, the same results, and whoever fails is named."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sparse_ring import session
from sparse_ring.config import Torchrun, torchrun
from sparse_ring.errors import ConfigError, SparseRingError
from sparse_ring.transport import world
from sparse_ring.transport.torch_distributed import world as torch_world
from tests.helpers import run_mpi, run_torch, start_torch
from tests.ops.suite import CHECKS

ROOT = Path(__file__).parent.parent
RANKS = ROOT / "tests" / "ranks"
JOBS = RANKS / "torch_jobs.py"
BIN = Path(sys.executable).parent
GONE = "Rank 1 has ended without shutdown()"
OTHERS = ["PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "SPARSE_RING_TRANSPORT", "TORCHELASTIC_USE_AGENT_STORE",
          "TORCHELASTIC_RESTART_COUNT", "USE_LIBUV"]  # fmt: skip
VARIABLES = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The environment without any launcher's variables."""
    for name in (*VARIABLES, *OTHERS):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.ranks
@pytest.mark.parametrize("size", [1, 2, 3])
def test_collectives(size: int) -> None:
    output = run_torch(size, RANKS / "ops_suite.py")
    assert output == "".join(f"rank {rank} of {size}: {len(CHECKS)} checks, all cycles\n" for rank in range(size))


@pytest.mark.ranks
def test_training() -> None:
    assert run_torch(2, RANKS / "training.py").count("training: ok") == 2


@pytest.mark.ranks
def test_frames_and_parameters_are_those_of_mpi() -> None:
    over_gloo = sorted(run_torch(2, JOBS, "frames").splitlines())
    assert over_gloo == sorted(run_mpi(2, JOBS, "frames").splitlines())
    assert len(over_gloo) == 2


@pytest.mark.ranks
def test_the_example_under_torchrun_ends_as_under_mpirun() -> None:
    hashes = []
    script = [str(ROOT / "examples" / "digits.py"), "--steps", "6"]
    for command in ([BIN / "torchrun", "--nproc-per-node", "2"], [BIN / "mpirun", "-n", "2", sys.executable]):
        done = subprocess.run([*command, *script], capture_output=True, text=True, timeout=120, cwd=ROOT)
        assert done.returncode == 0, done.stdout + done.stderr
        hashes.append(re.findall(r"parameter hash ([0-9a-f]{16})", done.stdout))
    assert hashes[0] == hashes[1]
    assert len(hashes[0]) == 2
    assert len(set(hashes[0])) == 1


@pytest.mark.ranks
def test_a_script_may_use_torch_distributed_itself() -> None:
    assert run_torch(2, JOBS, "torch_first") == "torch_first: ok\n" * 2


@pytest.mark.ranks
@pytest.mark.parametrize("mode", ["shut_down", "goes_on"])
def test_a_script_may_destroy_and_remake_its_default_group(mode: str) -> None:
    assert run_torch(2, JOBS, "remade", mode) == "remade: ok\n" * 2


@pytest.mark.ranks
@pytest.mark.faults
@pytest.mark.parametrize(
    ("present", "missing", "where"),
    [([0, 2], 1, ""), ([1], 0, r" at MASTER_ADDR, MASTER_PORT, 127\.0\.0\.1:\d+ \(.*Connection refused\)")],
)
def test_ranks_that_do_not_come_to_the_first_meeting_are_named(present: list[int], missing: int, where: str) -> None:
    limits = {"SPARSE_RING_STALL_CHECK_TIME_SECONDS": "1", "SPARSE_RING_STALL_SHUTDOWN_TIME_SECONDS": "4"}
    ended = start_torch(3, JOBS, "exits", ranks=present, settings=limits)
    for rank, (code, output) in zip(present, ended, strict=True):
        assert code == 1
        assert re.search(rf"Rank {rank}: init\(\) has waited \d s for ranks \[{missing}\]{where}\.", output)
    # Where two wait, the first to give up may be what the other one reports.
    assert re.search(
        rf"StallError: init\(\){where}: rank {missing} missing after 4 s", "".join(text for _, text in ended)
    )


@pytest.mark.ranks
@pytest.mark.faults
def test_a_rank_0_that_fails_in_init_is_named_by_those_that_wait_for_it() -> None:
    ended = start_torch(2, RANKS / "failing_init.py", "setting", "0", timeout=60)
    assert [code for code, _ in ended] == [1, 1]
    assert "ConfigError" in ended[0][1]
    assert "Rank 0 has ended without shutdown()" in ended[1][1]


@pytest.mark.ranks
def test_a_rank_may_leave_early_and_all_may_end_without_shutdown() -> None:
    text = "Tensor 'late': rank 1 has shut down and will not take part.\n"
    assert run_torch(3, JOBS, "early") == text * 2
    assert run_torch(2, JOBS, "exits") == ""


@pytest.mark.ranks
@pytest.mark.faults
@pytest.mark.parametrize(("mode", "code"), [("killed", -9), ("uncaught", 1)])
def test_a_rank_that_fails_ends_the_others_who_name_it(mode: str, code: int) -> None:
    ended = start_torch(3, JOBS, mode, timeout=60)
    assert [code for code, _ in ended] == [1, code, 1]
    for _, output in (ended[0], ended[2]):
        assert re.search(r"RankLostError: .*rank 1 has ended without shutdown\(\)", output, re.IGNORECASE)
        assert "after\n" not in output
    assert ("LookupError: only on rank 1" in ended[1][1]) == (mode == "uncaught")


@pytest.mark.ranks
@pytest.mark.faults
@pytest.mark.parametrize("mode", ["list", "setting", "kernels"])
def test_a_rank_that_fails_in_init_ends_the_others(mode: str) -> None:
    ended = start_torch(2, RANKS / "failing_init.py", mode, timeout=60)
    assert [code for code, _ in ended] == [1, 1]
    assert GONE in ended[0][1]
    assert "Error" in ended[1][1]


def test_the_variables_of_torchrun_are_read(environment: Any) -> None:
    assert torchrun() is None
    environment.setenv("MASTER_ADDR", "somewhere")
    assert torchrun() is None
    for name, value in {**VARIABLES, "RANK": "2", "WORLD_SIZE": "4"}.items():
        environment.setenv(name, value)
    assert torchrun() == Torchrun(2, 4, "127.0.0.1", 1)
    environment.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    environment.setenv("TORCHELASTIC_RESTART_COUNT", "3")
    environment.setenv("USE_LIBUV", "0")
    assert torchrun() == Torchrun(2, 4, "127.0.0.1", 1, agent_store=True, attempt="3", libuv=False)
    environment.setenv("RANK", "4")
    with pytest.raises(ConfigError, match="RANK is 4, but must be below WORLD_SIZE, which is 4"):
        torchrun()
    environment.setenv("RANK", "first")
    with pytest.raises(ConfigError, match="RANK is 'first', but must be a whole number"):
        torchrun()


def test_incomplete_variables_are_an_error_that_names_what_is_missing(environment: Any) -> None:
    environment.setenv("RANK", "0")
    environment.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="MASTER_ADDR is '', but must be set where RANK, WORLD_SIZE are"):
        session.init()
    assert not session.is_initialized()


def test_mpi_goes_first_and_two_launchers_that_differ_are_an_error(environment: Any) -> None:
    environment.setattr(world, "_load_mpi", lambda: None)
    environment.setattr(torch_world, "join", lambda *_: None)
    for name, value in VARIABLES.items():
        environment.setenv(name, value)
    assert world.start_world() == "c10d"
    assert world.start_world(asked_for="mpi") == "mpi"
    environment.setenv("PMI_SIZE", "1")
    assert world.start_world() == "mpi"
    assert world.start_world(asked_for="c10d") == "c10d"
    environment.setenv("PMI_SIZE", "3")
    with pytest.raises(SparseRingError, match=r"MPI launcher announces 3 ranks, and torchrun's variables .* 1\. Set "):
        world.start_world()


def test_asking_for_torch_without_its_launcher_says_what_is_missing(environment: Any) -> None:
    environment.setenv("SPARSE_RING_TRANSPORT", "c10d")
    with pytest.raises(SparseRingError, match="was not started by torchrun"):
        session.init()
    environment.setenv("SPARSE_RING_TRANSPORT", "pigeon")
    with pytest.raises(ConfigError, match="SPARSE_RING_TRANSPORT is 'pigeon', but must be one of auto, mpi, c10d"):
        session.init()
