"""Installs a wheel under every Python of this machine and trains with it: ``python -m tests.wheel.pythons WHEEL``.

A Python is ``python3.N`` on PATH or below ``~/.pyenv/versions``; others can be named after the wheel. Where torch cannot
be installed within ten minutes, the kernels are tried with NumPy alone, and the launcher without it. Prints a line for
each Python; ends with an error where a Python that could be tried failed.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.rules.source import ROOT
from tests.wheel.scripts import KERNELS, TRAINING

OLDEST = (3, 10)
INSTALL_SECONDS = 600
RUN_SECONDS = 300
ABOUT = (
    "import json, sys, sysconfig\n"
    "print(json.dumps([list(sys.version_info[:3]), bool(sysconfig.get_config_var('Py_GIL_DISABLED')), sys.base_prefix]))"
)


class CannotBeTriedError(Exception):
    """Why a step was not possible on this machine."""


@dataclass(frozen=True)
class Python:
    """An interpreter: its ``path``, ``version`` and whether it is ``free_threaded``."""

    path: str
    version: tuple[int, int, int]
    free_threaded: bool

    @property
    def name(self) -> str:
        """For people, as ``3.13.0t``."""
        return ".".join(map(str, self.version)) + ("t" if self.free_threaded else "")


def run(command: list[str], seconds: int, folder: Path) -> str:
    """Return what a command prints; raises CannotBeTriedError with its last line where it fails."""
    try:
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise CannotBeTriedError(f"not done after {seconds} s") from None
    if result.returncode:
        raise CannotBeTriedError((result.stderr.strip() or result.stdout.strip()).splitlines()[-1])
    return result.stdout


def pythons(named: list[str]) -> Iterator[Python]:
    """Yield each Python of this machine once, and the named ones first."""
    found = [*named, *(path for minor in range(OLDEST[1], 30) if (path := shutil.which(f"python3.{minor}")))]
    found += map(str, sorted((Path.home() / ".pyenv" / "versions").glob("*/bin/python")))
    seen = set()
    for path in found:
        try:
            version, free_threaded, prefix = json.loads(run([path, "-c", ABOUT], RUN_SECONDS, ROOT))
        except (CannotBeTriedError, OSError):
            continue
        if prefix not in seen and tuple(version[:2]) >= OLDEST:
            seen.add(prefix)
            yield Python(path, tuple(version), free_threaded)


def try_wheel(python: Python, wheel: Path, folder: Path) -> str:
    """Install and use the wheel in a virtual environment in ``folder``; returns what was done."""
    run([python.path, "-m", "venv", str(folder / "venv")], INSTALL_SECONDS, folder)
    own = str(folder / "venv" / "bin" / "python")
    pip = [own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if python.free_threaded:
        return _refused([*pip, "--no-deps", str(wheel)], folder)
    constraints = ["-c", str(ROOT / "constraints-cpu.txt")]
    try:
        run([*pip, *constraints, "torch"], INSTALL_SECONDS, folder)
        run([*pip, *constraints, f"{wheel}[mpich]"], INSTALL_SECONDS, folder)
    except CannotBeTriedError as error:
        run([*pip, "--no-deps", str(wheel)], INSTALL_SECONDS, folder)
        run([*pip, *constraints, "numpy", "rich"], INSTALL_SECONDS, folder)
        _kernels(own, folder)
        run([own, "-m", "sparse_ring.launcher.main", "--help"], RUN_SECONDS, folder)
        return f"kernels right, launcher starts; torch could not be installed ({error})"
    _kernels(own, folder)
    (folder / "train.py").write_text(TRAINING)
    launcher = str(folder / "venv" / "bin" / "sparse-ring-run")
    printed = run([launcher, "-np", "2", own, "train.py"], RUN_SECONDS, folder)
    hashes = re.findall(r"^\[rank \d\] trained (\w+)$", printed, re.MULTILINE)
    if len(hashes) != 2 or len(set(hashes)) != 1:
        raise RuntimeError(f"two ranks printed {printed!r}")
    return f"kernels right, two ranks trained, both with parameter hash {hashes[0]}"


def _kernels(own: str, folder: Path) -> None:
    printed = run([own, "-c", KERNELS], RUN_SECONDS, folder)
    if printed != "[[2, [1, 3]], [2, [1, 3]], [2, [1, 3]]]\n":
        raise RuntimeError(f"the kernels select {printed}")


def _refused(command: list[str], folder: Path) -> str:
    try:
        run(command, INSTALL_SECONDS, folder)
    except CannotBeTriedError as error:
        return f"free-threaded: refused, as it should be ({error})"
    raise RuntimeError("free-threaded, but pip has installed a wheel of the stable ABI")


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    wheel, named = Path(sys.argv[1]).resolve(), sys.argv[2:]
    failed = []
    for python in pythons(named):
        with tempfile.TemporaryDirectory(prefix="wheel-") as folder:
            try:
                text = try_wheel(python, wheel, Path(folder))
            except (CannotBeTriedError, RuntimeError) as error:
                failed.append(python.name)
                text = f"FAILED: {error}"
        print(f"Python {python.name}: {text}", flush=True)
    if failed:
        sys.exit(f"{wheel.name} fails under Python {', '.join(failed)}")


if __name__ == "__main__":
    main()
