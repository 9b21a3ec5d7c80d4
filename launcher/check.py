"""``--check-build``: what this installation has, and whether it works."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata

from sparse_ring.errors import SparseRingError

from .mpi import find_mpi

# In a process of its own: the launcher itself loads none of this, and what crashes there is only missing here.
_PROBES = {
    "PyTorch": "import torch; print(torch.__version__)",
    "CUDA for PyTorch": "import torch; assert torch.cuda.is_available(); print(torch.version.cuda)",
    "MPI library for mpi4py": "from mpi4py import MPI; print(MPI.Get_library_version().splitlines()[0])",
    "native kernels": "from sparse_ring import _native; print(', '.join(_native.supported()))",
}
_NEEDED = ("PyTorch", "MPI library for mpi4py", "native kernels", "launcher of ranks")
_PROBE_SECONDS = 120


def check_build(environment: Mapping[str, str]) -> tuple[str, bool]:
    """Return a text for people, and whether everything is there that training on several ranks needs."""
    found = {name: _probe(code, environment) for name, code in _PROBES.items()}
    try:
        mpi = find_mpi(environment)
        found["launcher of ranks"] = True, f"{mpi.name} ({mpi.path})"
    except SparseRingError as error:
        found["launcher of ranks"] = False, str(error)
    srun = shutil.which("srun", path=environment.get("PATH"))
    found["Slurm"] = srun is not None, srun or "no srun on PATH"
    lines = [f"sparse_ring {_version()} on Python {platform.python_version()}", ""]
    lines += [f"[{'x' if works else ' '}] {name}: {text}" for name, (works, text) in found.items()]
    return "\n".join(lines), all(found[name][0] for name in _NEEDED)


def _probe(code: str, environment: Mapping[str, str]) -> tuple[bool, str]:
    try:
        answer = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False, f"no answer within {_PROBE_SECONDS} s"
    said = (answer.stdout if answer.returncode == 0 else answer.stderr).strip().splitlines()
    return answer.returncode == 0, said[-1] if said else "not there"


def _version() -> str:
    try:
        return metadata.version("sparse-ring")
    except metadata.PackageNotFoundError:
        return "(not installed)"
