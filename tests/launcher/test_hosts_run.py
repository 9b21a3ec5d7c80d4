"""Several hosts, played by network namespaces: started over a stand-in for ssh, watched over TCP."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from benchmarks.netlab import Lab
from tests.launcher.support import Run, Starter
from tests.launcher.test_endings import MPI_SCRIPT, PLAIN_SCRIPT, SLEEP

pytestmark = [pytest.mark.ranks, pytest.mark.faults]


def test_ranks_on_two_hosts_work_together(starter: Starter, hosts: Lab) -> None:
    script = (
        "import json, os, sys, torch\n"
        "import sparse_ring.torch as hvd\n"
        "hvd.init()\n"
        "total = hvd.allreduce(torch.arange(3.0) * (hvd.rank() + 1), op=hvd.Sum).tolist()\n"
        "names = sorted(name for name in os.environ if 'SECRET' in name)\n"
        "print(json.dumps([hvd.rank(), hvd.local_size(), hvd.cross_rank(), total, names, os.environ['MINE']]))\n"
    )
    options = [*hosts.launcher_options(), "-x", "MINE", "-p", "2222", "-i", "/no/key"]
    run = starter.launch(2, script, options=options, MINE="a b")
    result = run.end()
    assert result.code == 0, result.stderr
    told = sorted(json.loads(line.partition("] ")[2]) for line in result.stdout.splitlines())
    assert told == [[rank, 1, rank, [0.0, 3.0, 6.0], [], "a b"] for rank in (0, 1)]
    called = Path(f"{hosts.ssh}.log").read_text().splitlines()
    assert sorted(" ".join(line.split()[:6]) for line in called) == [
        f"-x -p 2222 -i /no/key {address}" for address in hosts.addresses
    ]
    run.assert_nothing_left()


def test_output_of_other_hosts_comes_whole(starter: Starter, hosts: Lab) -> None:
    script = (
        "import sys\nfrom mpi4py import MPI\nrank = MPI.COMM_WORLD.rank\n"
        "for number in range(20000):\n    print(f'{rank} {number} ' + 'x' * 100)\n"
        "print('end', file=sys.stderr)\n"
    )
    result = starter.launch(2, script, options=hosts.launcher_options()).end()
    for rank in (0, 1):
        mine = [line for line in result.stdout.splitlines() if line.startswith(f"[rank {rank}]")]
        assert mine == [f"[rank {rank}] {rank} {number} " + "x" * 100 for number in range(20000)]
    assert sorted(result.stderr.splitlines()) == ["[rank 0] end", "[rank 1] end"]
    assert result.code == 0


@pytest.mark.parametrize(
    ("statement", "said", "code"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "was killed by signal 9 (SIGKILL)", 137),
        ("os._exit(3)", "ended with exit code 3", 3),
        ("MPI.COMM_WORLD.Abort(5)", "ended with exit code 5 (MPI_Abort)", 5),
    ],
)
def test_failed_rank_is_named_with_its_host(starter: Starter, hosts: Lab, statement: str, said: str, code: int) -> None:
    run = starter.launch(2, MPI_SCRIPT + f"if rank == 1:\n    {statement}\n" + SLEEP, options=hosts.launcher_options())
    result = run.end()
    assert result.stderr.splitlines()[-1].startswith(f"sparse-ring-run: rank 1 on host2 {said}")
    assert result.code == code
    run.assert_nothing_left()


def start_sleeping(starter: Starter, hosts: Lab, script: str = MPI_SCRIPT, **environment: str) -> Run:
    run = starter.launch(2, script + SLEEP, options=hosts.launcher_options(), **environment)
    run.wait_for_file(starter.folder, 2)
    return run


def test_killed_launcher_leaves_nothing_on_other_hosts(starter: Starter, hosts: Lab) -> None:
    (starter.folder / "tmp").mkdir()
    run = start_sleeping(starter, hosts, TMPDIR=str(starter.folder / "tmp"))
    assert len(list((starter.folder / "tmp").iterdir())) == 2
    os.kill(run.process.pid, signal.SIGKILL)
    run.end()
    run.assert_nothing_left()
    assert list((starter.folder / "tmp").iterdir()) == []


def test_signal_ends_ranks_on_other_hosts(starter: Starter, hosts: Lab) -> None:
    run = start_sleeping(starter, hosts)
    os.kill(run.process.pid, signal.SIGINT)
    result = run.end()
    assert (result.stderr, result.code) == ("sparse-ring-run: SIGINT: ending all ranks\n", 130)
    run.assert_nothing_left()


def test_killed_proxy_ends_the_job(starter: Starter, hosts: Lab) -> None:
    run = start_sleeping(starter, hosts)
    proxies = [pid for pid in parents(run.pids("launcher.rank")) if "hydra_pmi_proxy" in command_line(pid)]
    assert len(proxies) == 2
    os.kill(proxies[0], signal.SIGKILL)
    assert run.end().code != 0
    run.assert_nothing_left()


def parents(pids: list[int]) -> list[int]:
    return sorted({int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) for pid in pids})


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode()


def test_host_that_is_cut_off_ends_the_job_on_both_sides(starter: Starter, hosts: Lab) -> None:
    run = start_sleeping(starter, hosts, PLAIN_SCRIPT)
    hosts.down(2)
    try:
        result = run.end()
        assert result.stderr.splitlines()[-1].startswith(
            "sparse-ring-run: rank 1 on host2 was lost: its host, the network"
        )
        assert result.code == 137
        run.assert_nothing_left()
    finally:
        hosts.up(2)


def test_host_that_cannot_be_reached_is_told_by_mpi(starter: Starter, hosts: Lab) -> None:
    hosts.down(2)
    try:
        run = starter.launch(2, PLAIN_SCRIPT + SLEEP, options=hosts.launcher_options())
        result = run.end()
        lines = result.stderr.splitlines()
        assert lines[0] == "sparse-ring-run: mpiexec ended with exit code 255"
        assert any(line.startswith("[mpi] [proxy:1@host2]") for line in lines[1:])
        assert result.code == 255
        run.assert_nothing_left()
    finally:
        hosts.up(2)
