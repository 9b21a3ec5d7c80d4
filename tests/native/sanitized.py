"""The native module built with AddressSanitizer and UndefinedBehaviorSanitizer, and a Python that can load it."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMPILER = "g++"
FLAGS = [
    "-DPy_LIMITED_API=0x030A0000", "-std=c++17", "-O1", "-g", "-fPIC", "-ffp-contract=off", "-fno-math-errno",
    "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer",
]  # fmt: skip


def runtime() -> Path | None:
    """Return AddressSanitizer's library, which has to be loaded before Python; None where the compiler brings none."""
    try:
        command = [COMPILER, "-print-file-name=libasan.so"]
        found = Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.resolve() if found.is_absolute() and found.exists() else None


def build(folder: Path) -> Path:
    """Compile the native sources into ``folder`` and return the module."""
    include = ["-I", str(ROOT / "native"), "-I", sysconfig.get_path("include")]
    objects = []
    for source in sorted((ROOT / "native").glob("*.cpp")):
        objects.append(str(folder / f"{source.stem}.o"))
        subprocess.run([COMPILER, *FLAGS, *include, "-c", str(source), "-o", objects[-1]], check=True)
    module = folder / "_native.abi3.so"
    subprocess.run([COMPILER, "-shared", "-fsanitize=address,undefined", *objects, "-o", str(module)], check=True)
    return module


def progress_file(module: Path | str) -> Path:
    """Return the file that holds the number of the message at hand: the sanitizers end a process without Python's knowledge."""
    return Path(module).with_name("message-number")


def run(module: Path, library: Path, *arguments: str, timeout: float) -> subprocess.CompletedProcess[str]:
    """Run ``python -m tests.native.mutations MODULE arguments`` under the sanitizers; output in ``stdout``."""
    environment = os.environ | {
        "LD_PRELOAD": str(library),
        "PYTHONMALLOC": "malloc",  # so that Python's own buffers are watched as well
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "tests.native.mutations", str(module), *arguments]
    result = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout
    )
    if result.returncode and progress_file(module).exists():
        result.stdout += f"\nfailed at message {progress_file(module).read_text().strip()}\n"
    return result
