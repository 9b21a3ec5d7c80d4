"""Finding MPI and calling its mpiexec."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from sparse_ring.errors import SparseRingError
from sparse_ring.launcher.mpi import Mpi, find_mpi, identify, rank_of

OPEN_MPI = "mpiexec (Open MPI) 5.0.11\n\nReport bugs to somebody\n"
MPICH = "HYDRA build details:\n    Version:                                 5.0.2\n"


def test_mpich_takes_no_options() -> None:
    assert identify("/bin/mpiexec", MPICH, root=True) == Mpi("/bin/mpiexec", "MPICH")


def test_open_mpi_as_root_and_as_user() -> None:
    options = ("--oversubscribe", "--bind-to", "none")
    assert identify("/m", OPEN_MPI, root=False) == Mpi("/m", "Open MPI", options)
    assert identify("/m", OPEN_MPI, root=True) == Mpi("/m", "Open MPI", ("--allow-run-as-root", *options))


def test_unknown_mpi_is_called_by_its_first_line() -> None:
    assert identify("/m", "Other MPI 3\nmore", root=True) == Mpi("/m", "Other MPI 3")
    assert identify("/m", "", root=True) == Mpi("/m", "unknown MPI")


def test_command_line() -> None:
    assert Mpi("/m", "x", ("--flag",)).command(3, ["python", "a b"]) == ["/m", "--flag", "-n", "3", "python", "a b"]


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
    assert found == Mpi(str(folders["beside"] / "mpiexec"), "beside")


def test_mpiexec_on_path_comes_second(folders: dict[str, Path]) -> None:
    found = find_mpi({"PATH": str(folders["elsewhere"])}, str(folders["empty"] / "python"))
    assert found == Mpi(str(folders["elsewhere"] / "mpiexec"), "elsewhere")


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
