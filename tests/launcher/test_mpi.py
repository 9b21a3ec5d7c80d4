"""Finding MPI and calling its mpiexec."""

from __future__ import annotations

import re
import socket
import sys
from pathlib import Path

import pytest

from sparse_ring.errors import SparseRingError
from sparse_ring.launcher.base import Mpi, Start, complete
from sparse_ring.launcher.hosts import Host
from sparse_ring.launcher.hydra import IntelMpi, Mpich
from sparse_ring.launcher.mpi import OtherMpi, find_mpi, identify, rank_of
from sparse_ring.launcher.openmpi import FIVE, FOUR, OpenMpi
from sparse_ring.launcher.slurm import Srun

HERE = Start(ranks=3, program=("python", "a b"))
THERE = Start(
    ranks=3,
    program=("python", "x"),
    hosts=(Host("h1", 2), Host("h2", 1)),
    interface="eth1",
    ssh_port=2222,
    ssh_identity="/key",
    passed=("A", "B"),
    extra=("--more", "1"),
)
ALLOCATED = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "localhost"}


@pytest.mark.parametrize(
    ("version", "kind", "name"),
    [
        ("HYDRA build details:\n    Version:                                 5.0.2\n", Mpich, "MPICH"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.11 Build 20231005\n", IntelMpi, "Intel MPI"),
        ("mpiexec (Open MPI) 5.0.11\n\nReport bugs to somebody\n", OpenMpi, "Open MPI"),
        ("Other MPI 3\nmore", OtherMpi, "Other MPI 3"),
        ("", OtherMpi, "unknown MPI"),
    ],
)
def test_mpi_is_told_by_its_version(version: str, kind: type[Mpi], name: str) -> None:
    found = identify("/m", version, root=True)
    assert (type(found), found.path, found.name) == (kind, "/m", name)


@pytest.mark.parametrize(
    ("version", "dialect"),
    [
        ("mpiexec (Open MPI) 5.0.11", FIVE),
        ("prterun (PRRTE) 3.0.5", FIVE),
        ("mpirun (Open MPI) 4.1.4", FOUR),
        ("mpiexec (OpenRTE) 4.0.3", FOUR),
    ],
)
def test_versions_of_open_mpi_are_told_apart(version: str, dialect: object) -> None:
    found = identify("/m", version, root=False)
    assert isinstance(found, OpenMpi)
    assert (found.dialect, found.root) == (dialect, False)


@pytest.mark.parametrize(
    ("mpi", "line"),
    [
        (Mpich("/m", "MPICH"), "/m -n 3"),
        (IntelMpi("/m", "Intel MPI"), "/m -n 3"),
        (OpenMpi("/m", FOUR, root=False), "/m --oversubscribe --bind-to none -n 3"),
        (OpenMpi("/m", FIVE, root=True), "/m --allow-run-as-root --oversubscribe --bind-to none -n 3"),
        (OtherMpi("/m", "x"), "/m -n 3"),
        (
            Srun("/s", ALLOCATED),
            "/s --mpi=pmi2 --export=ALL --input=0 --overcommit --cpu-bind=none --kill-on-bad-exit=0 --wait=0 -n 3",
        ),
    ],
)
def test_command_line_on_one_host(mpi: Mpi, line: str) -> None:
    assert mpi.command(HERE) == [*line.split(" "), "python", "a b"]
    assert mpi.variables(HERE, {}) == {}
    assert mpi.remote_hosts(HERE) == []


SSH = "-p 2222 -i /key"
OPEN_MPI = ["--map-by", "slot", "--host", "h1:2,h2:1", "-x", "A", "-x", "B"]


@pytest.mark.parametrize(
    ("mpi", "line"),
    [
        (
            Mpich("/m", "MPICH"),
            ["-iface", "eth1", "-hosts", "h1:2,h2:1", "--more", "1", "-n", "3", "python", "x"],
        ),
        (
            IntelMpi("/m", "Intel MPI"),
            ["-iface", "eth1", "-bootstrap", "ssh", "-bootstrap-exec-args", SSH, "--more", "1",
             "-host", "h1", "-n", "2", "python", "x", ":", "-host", "h2", "-n", "1", "python", "x"],
        ),
        (
            OpenMpi("/m", FOUR, root=False),
            ["--oversubscribe", "--bind-to", "none", "--mca", "btl_tcp_if_include", "eth1",
             "--mca", "oob_tcp_if_include", "eth1", *OPEN_MPI, "--mca", "plm_rsh_args", SSH,
             "--more", "1", "-n", "3", "python", "x"],
        ),
        (
            OpenMpi("/m", FIVE, root=False),
            ["--oversubscribe", "--bind-to", "none", "--mca", "btl_tcp_if_include", "eth1",
             "--prtemca", "prte_if_include", "eth1", *OPEN_MPI, "--prtemca", "plm_ssh_args", SSH,
             "--more", "1", "-n", "3", "python", "x"],
        ),
    ],
)  # fmt: skip
def test_command_line_on_several_hosts(mpi: Mpi, line: list[str]) -> None:
    assert mpi.command(THERE) == ["/m", *line]
    assert mpi.remote_hosts(THERE) == ["h1", "h2"]


def test_variables_on_several_hosts() -> None:
    torch = {"GLOO_SOCKET_IFNAME": "eth1", "NCCL_SOCKET_IFNAME": "eth1"}
    assert Mpich("/m", "MPICH").variables(THERE, {"FI_TCP_IFACE": "mine", "HYDRA_LAUNCHER_EXTRA_ARGS": "-v"}) == {
        **torch,
        "HYDRA_LAUNCHER": "ssh",
        "UCX_NET_DEVICES": "eth1",
        "HYDRA_LAUNCHER_EXTRA_ARGS": f"-v {SSH}",
    }
    assert IntelMpi("/m", "Intel MPI").variables(THERE, {}) == {**torch, "FI_TCP_IFACE": "eth1"}
    assert OpenMpi("/m", FIVE, root=True).variables(THERE, {}) == {**torch, "UCX_NET_DEVICES": "eth1"}


def test_hosts_of_an_unknown_mpi_are_refused() -> None:
    with pytest.raises(SparseRingError, match=r"^How x \(/m\) is told hosts and interfaces is not known; use MPICH, "):
        OtherMpi("/m", "x").command(THERE)


def test_slurm_takes_the_hosts_of_the_allocation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Srun("/s", {"SLURM_JOB_NODELIST": socket.gethostname()}).remote_hosts(HERE) == []
    (tmp_path / "scontrol").write_text('#!/bin/sh\n[ "$*" = "show hostnames n[1-2]" ] && echo n1 && echo n2\n')
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert Srun("/s", {"SLURM_JOB_NODELIST": "n[1-2]"}).remote_hosts(HERE) == ["n1", "n2"]
    (tmp_path / "scontrol").write_text("#!/bin/sh\nexit 1\n")
    assert Srun("/s", {"SLURM_JOB_NODELIST": "n7"}).remote_hosts(HERE) == ["n7"]


def test_stub_comes_before_the_program_and_names_are_passed() -> None:
    environment = {"PATH": "/b", "SPARSE_RING_PROGRESS": "0", "HOME": "/h", "OMP_NUM_THREADS": "1", "UCX_TLS": "tcp"}
    start = complete(THERE, ["--socket", "/s"], environment)
    assert start.program == (sys.executable, "-m", "sparse_ring.launcher.rank", "--socket", "/s", "--", "python", "x")
    assert start.passed == ("A", "B", "OMP_NUM_THREADS", "PATH", "SPARSE_RING_PROGRESS", "UCX_TLS")


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    result = {name: tmp_path / name for name in ("beside", "elsewhere", "empty")}
    for name, folder in result.items():
        folder.mkdir()
        if name != "empty":
            (folder / "mpiexec").write_text(f"#!/bin/sh\necho {name}\n")
            (folder / "mpiexec").chmod(0o755)
    return result


def test_mpiexec_beside_python_comes_first(folders: dict[str, Path]) -> None:
    found = find_mpi({"PATH": str(folders["elsewhere"])}, str(folders["beside"] / "python"))
    assert (found.path, found.name) == (str(folders["beside"] / "mpiexec"), "beside")


def test_mpiexec_on_path_comes_second(folders: dict[str, Path]) -> None:
    found = find_mpi({"PATH": str(folders["elsewhere"])}, str(folders["empty"] / "python"))
    assert (found.path, found.name) == (str(folders["elsewhere"] / "mpiexec"), "elsewhere")


def add_srun(folder: Path) -> str:
    (folder / "srun").write_text("#!/bin/sh\n")
    (folder / "srun").chmod(0o755)
    return str(folder / "srun")


@pytest.mark.parametrize("beside", ["beside", "empty"])
def test_srun_is_used_in_an_allocation(folders: dict[str, Path], beside: str) -> None:
    srun = add_srun(folders["empty"])
    environment = {"PATH": str(folders["empty"])}
    found = find_mpi(environment | ALLOCATED, str(folders[beside] / "python"))
    assert (type(found), found.path, found.name) == (Srun, srun, "Slurm")


def test_srun_is_not_used_outside_with_hosts_or_open_mpi(folders: dict[str, Path]) -> None:
    add_srun(folders["empty"])
    environment = {"PATH": str(folders["empty"])}
    python = str(folders["beside"] / "python")
    assert find_mpi(environment, python).name == "beside"
    assert find_mpi(environment | ALLOCATED, python, hosts=True).name == "beside"
    (folders["beside"] / "mpiexec").write_text("#!/bin/sh\necho 'mpiexec (Open MPI) 5.0.11'\n")
    assert find_mpi(environment | ALLOCATED, python).name == "Open MPI"


def test_no_mpiexec_says_what_to_install(folders: dict[str, Path]) -> None:
    python = str(folders["empty"] / "python")
    text = f"No mpiexec was found beside {python} or on PATH. Install one with: pip install sparse-ring[mpich]"
    with pytest.raises(SparseRingError, match=f"^{re.escape(text)}$"):
        find_mpi({"PATH": str(folders["empty"])}, python)


def test_mpiexec_that_does_not_run_is_named(folders: dict[str, Path]) -> None:
    path = folders["beside"] / "mpiexec"
    path.write_text("#!/nowhere/interpreter\n")
    with pytest.raises(SparseRingError, match=re.escape(f"{path} --version failed")):
        find_mpi({"PATH": ""}, str(folders["beside"] / "python"))


def test_mpi_of_this_environment_is_known() -> None:
    assert find_mpi({"PATH": ""}).name in ("MPICH", "Open MPI")
    assert find_mpi({"PATH": ""}).path == str(Path(sys.executable).parent / "mpiexec")


@pytest.mark.parametrize("name", ["PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK"])
def test_rank_is_read_from_what_mpi_sets(name: str) -> None:
    assert rank_of({name: "3"}) == 3


def test_no_rank_outside_mpi() -> None:
    assert rank_of({"PMI_RANK": "", "RANK": "1"}) is None
