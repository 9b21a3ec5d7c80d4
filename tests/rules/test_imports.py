"""Imports run downwards only, the launcher keeps to itself, and importing starts nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.rules.source import imports, modules

# From top to bottom; the rooms of one line may import one another as long as there is no cycle.
LAYERS = [
    ["torch"],
    ["checkpoint", "ddp"],
    ["optimizer"],
    ["ops", "functions", "views", "observing"],
    ["session", "identity", "membership", "recording"],
    ["plan"],
    ["gradient"],
    ["recipe"],
    ["error_feedback", "select", "encode", "message", "exchange"],
    ["engine"],
    ["transport", "kernels", "_native"],
    ["sparse", "config", "errors", "observe"],
]
HEIGHT = {room: -row for row, rooms in enumerate(LAYERS) for room in rooms}
LAUNCHER_MAY_IMPORT = {"config", "errors", "observe", "launcher"}


def room(name: str) -> str:
    return (*name.split("."), "")[1]


def own_imports(name: str) -> set[str]:
    """Rooms of this project that a module imports, its own left out."""
    found = {room(target) for target in imports(name) if target.split(".")[0] == "sparse_ring"}
    return found - {room(name)}


def test_every_room_has_its_place() -> None:
    assert {room(name) for name in modules()} - {"", "launcher"} <= set(HEIGHT)


@pytest.mark.parametrize("name", [name for name in modules() if room(name) not in ("", "launcher")])
def test_imports_run_downwards(name: str) -> None:
    upwards = {target for target in own_imports(name) if HEIGHT.get(target, 1) > HEIGHT[room(name)]}
    assert not upwards, f"{name} imports {sorted(upwards)}, which stand above it"


def test_no_cycles_among_rooms() -> None:
    below: dict[str, set[str]] = {}
    for name in modules():
        below.setdefault(room(name), set()).update(own_imports(name))
    done: list[str] = []
    while ready := sorted(name for name in below if name not in done and below[name] <= {*done, "_native"}):
        done += ready
    assert set(below) == set(done), f"a cycle among {sorted(set(below) - set(done))}"


def test_package_itself_imports_nothing_of_its_own() -> None:
    assert own_imports("sparse_ring") == set()


@pytest.mark.parametrize("name", [name for name in modules() if room(name) == "launcher"])
def test_launcher_imports_little(name: str) -> None:
    outside = {target.split(".")[0] for target in imports(name)} - {"sparse_ring"}
    assert own_imports(name) <= LAUNCHER_MAY_IMPORT
    assert outside <= set(sys.stdlib_module_names)


@pytest.mark.parametrize("name", ["sparse_ring", "sparse_ring.torch"])
def test_importing_starts_nothing(name: str) -> None:
    # What starts with torch and NumPy themselves is theirs.
    code = (
        f"import sys, threading, importlib, numpy\n"
        f"{'import torch' if name.endswith('torch') else 'pass'}\n"
        f"from pathlib import Path\n"
        f"count = lambda: len(list(Path('/proc/self/task').iterdir()))\n"
        f"before = count()\n"
        f"importlib.import_module({name!r})\n"
        f"print(threading.active_count(), count() - before, 'mpi4py.MPI' in sys.modules)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (result.stdout, result.stderr) == ("1 0 False\n", "")


def test_importing_sparse_ring_does_not_load_torch() -> None:
    code = "import sys, sparse_ring\nprint('torch' in sys.modules, 'numpy' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "False False\n"
