"""The wheel: what is in it, and that it works outside the tree."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import textwrap
import zipfile
from pathlib import Path

import pytest

from tests.rules.source import ROOT, modules
from tests.wheel.audit import problems
from tests.wheel.scripts import KERNELS

pytestmark = pytest.mark.wheel

# What the wheel is built from; anything else in the tree must not be needed.
SOURCES = ("sparse_ring", "launcher", "native", "pyproject.toml", "setup.cfg", "README.md")
SCRIPT = KERNELS.replace("print(json.dumps(found))", "") + textwrap.dedent(
    """
    import torch
    import sparse_ring.torch as hvd

    hvd.init()
    total = hvd.allreduce(torch.arange(3.0) * (hvd.rank() + 1), op=hvd.Sum).tolist()
    print(json.dumps([sparse_ring.__version__, found, hvd.size(), total]))
    hvd.shutdown()
    """
)
FOUND = "[[2, [1, 3]], [2, [1, 3]], [2, [1, 3]]]"


def run(*command: str, cwd: Path, **environment: str) -> str:
    result = subprocess.run(
        command, cwd=cwd, env=os.environ | environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert result.returncode == 0, f"{command}: {result.stdout}{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build from a copy, as a build leaves files in its tree that a next one would take along."""
    folder = tmp_path_factory.mktemp("wheel")
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / "tree" / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, folder / "tree" / name)
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), "./tree", cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a fresh virtual environment with the wheel, which sees this one's other packages."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", "venv", cwd=folder)
    venv = folder / "venv"
    python = str(venv / "bin" / "python")
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", str(wheel), cwd=folder)
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip()
    (Path(site) / "outer.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return venv


def test_tag_promises_every_python_from_310(wheel: Path) -> None:
    assert wheel.name.split("-")[:4] == ["sparse_ring", "0.1.0", "cp310", "abi3"]


def test_native_module_needs_nothing_but_the_system(wheel: Path) -> None:
    assert problems(wheel) == []


def test_audit_names_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "bad.c").write_text(
        "double cos(double); void *PyType_FromMetaclass(void); void *_PyDict_Pop(void);\n"
        "double wrong(double x) { return PyType_FromMetaclass() == _PyDict_Pop() ? cos(x) : 0; }\n"
    )
    (tmp_path / "other.c").write_text("int other;\n")
    run("cc", "other.c", "-shared", "-fPIC", "-o", "libother.so", cwd=tmp_path)
    flags = ["-shared", "-fPIC", "-Wl,--no-as-needed", "-Wl,-rpath,/somewhere", "-L.", "-lother", "-nostartfiles"]
    run("cc", "bad.c", *flags, "-o", "bad.so", cwd=tmp_path)
    with zipfile.ZipFile(tmp_path / "bad.whl", "w") as archive:
        archive.write(tmp_path / "bad.so", "bad.so")
    assert sorted(problems(tmp_path / "bad.whl")) == [
        "bad.so exports wrong",
        "bad.so links against libother.so",
        "bad.so looks for libraries in a path of the machine that built it",
        "bad.so needs PyType_FromMetaclass, which is not in the stable ABI of Python 3.10",
        "bad.so needs _PyDict_Pop, which is not in the stable ABI of Python 3.10",
    ]
    with zipfile.ZipFile(tmp_path / "empty.whl", "w"):
        pass
    assert problems(tmp_path / "empty.whl") == ["the wheel has no native module"]


def test_contents(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    code = {name for name in names if not name.startswith("sparse_ring-0.1.0.dist-info/")}
    wanted = {"sparse_ring/_native.abi3.so", "sparse_ring/_native.pyi", "sparse_ring/py.typed"}
    for name, path in modules().items():
        file = "/".join(name.split("."))
        wanted.add(f"{file}/__init__.py" if path.name == "__init__.py" else f"{file}.py")
    assert code == wanted


def test_one_rank_outside_the_tree(environment: Path, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    printed = run(str(environment / "bin" / "python"), "script.py", cwd=tmp_path)
    assert printed == f'["0.1.0", {FOUND}, 1, [0.0, 1.0, 2.0]]\n'


@pytest.mark.ranks
def test_two_ranks_under_the_installed_launcher(environment: Path, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [str(environment / "bin" / "sparse-ring-run"), "-np", "2", "python", "script.py"]
    search = os.pathsep.join([str(environment / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    # An MPI from a wheel lies in its environment, where mpi4py looks for it in the environment of the running Python.
    found = sorted(Path(sys.prefix, "lib").glob("libmpi.so.*"))
    library = {"MPI4PY_LIBMPI": str(found[0])} if found else {}
    printed = run(*command, cwd=tmp_path, PATH=search, OMP_NUM_THREADS="1", **library)
    result = f'["0.1.0", {FOUND}, 2, [0.0, 3.0, 6.0]]'
    assert sorted(printed.splitlines()) == [f"[rank 0] {result}", f"[rank 1] {result}"]


def test_installed_launcher_shows_help(environment: Path, tmp_path: Path) -> None:
    printed = run(str(environment / "bin" / "sparse-ring-run"), "--help", cwd=tmp_path)
    assert printed.startswith("usage: sparse-ring-run -np N [option ...] command [argument ...]\n")
