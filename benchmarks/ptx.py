"""What the CUDA kernels compile to, without a GPU: PTX, and where ptxas is at hand, registers, spills and machine code.

    python -m benchmarks.ptx [--page PATH]

Every kernel for Volta, Ampere, Hopper and Blackwell. PTX must round every operation on floats explicitly, and hold neither a
fused multiply-add on floats nor an atomic operation; nothing may spill. Ends with 1 where that is not so. The machine code
is read with nvdisasm, for what the assembler may have fused.
"""

from __future__ import annotations

import argparse
import importlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from numba import cuda

TARGETS = {70: "Volta", 80: "Ampere", 90: "Hopper", 100: "Blackwell"}
USED = ("numba", "numba-cuda", "nvidia-cuda-nvcc-cu12", "nvidia-cuda-nvdisasm")
OLDEST_READ = 75  # by the nvdisasm that there is a wheel of
FLOATS = r"f(16|32|64)"
FORBIDDEN = {
    "a fused multiply-add on floats": re.compile(rf"\b(fma|mad)\.\S*{FLOATS}\b"),
    "an atomic operation": re.compile(r"\b(atom|red)\.\S+"),
    "flushing or approximating": re.compile(r"\b\S*\.(ftz|approx)\S*"),
    "arithmetic without explicit rounding": re.compile(
        rf"\b(add|sub|mul|div|sqrt|rcp)\.(?!rn\.{FLOATS}\b)(\w+\.)*{FLOATS}\b"
    ),
}
FUSED_IN_MACHINE_CODE = re.compile(r"\b[FDH]FMA\S*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """One kernel on one architecture. ``registers``, ``spilled_bytes`` and the rest are None without ptxas or nvdisasm."""

    kernel: str
    target: int
    instructions: int
    faults: tuple[str, ...]
    registers: int | None = None
    spilled_bytes: int | None = None
    shared_bytes: int | None = None
    machine_instructions: int | None = None


def kernels() -> dict[str, tuple[object, str]]:
    """Every kernel's function and signature by name."""
    importlib.import_module("sparse_ring.kernels.cuda.kernels")
    return dict(importlib.import_module("sparse_ring.kernels.cuda.warp").SIGNATURES)


def ptx_of(function: object, signature: str, target: int) -> str:
    """Return a kernel's PTX for an architecture such as 90."""
    capability = divmod(target, 10)
    # For the functions that a kernel calls, Numba asks the device that it runs on; here is none.
    device = SimpleNamespace(compute_capability=capability)
    with mock.patch("numba.cuda.dispatcher.get_current_device", return_value=device):
        text: str = cuda.compile(function, signature, device=False, abi="numba", cc=capability)[0]
    return text


def faults_of(ptx: str) -> tuple[str, ...]:
    """Return what is in a kernel's PTX that must not be."""
    code = re.sub(r"//.*", "", ptx)
    return tuple(f"{what}: {found.group()}" for what, pattern in FORBIDDEN.items() for found in pattern.finditer(code))


def tool(name: str) -> str | None:
    """Return the path of a tool of the CUDA toolkit: in a wheel beside this Python, or on PATH."""
    for folder in map(Path, sys.path):
        for found in sorted(folder.glob(f"nvidia/*/bin/{name}")):
            return str(found)
    return shutil.which(name)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command[0]}: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    return int(found.group(1)) if found else 0


def assembled(ptx: str, target: int) -> dict[str, int]:
    """Return the figures of ``Compiled`` that ptxas and nvdisasm give, where they are there."""
    with tempfile.TemporaryDirectory() as folder:
        return _assembled(ptx, target, Path(folder))


def _assembled(ptx: str, target: int, folder: Path) -> dict[str, int]:
    ptxas, nvdisasm = tool("ptxas"), tool("nvdisasm")
    if ptxas is None:
        return {}
    source, binary = folder / "kernel.ptx", folder / "kernel.cubin"
    source.write_text(ptx)
    said = _run(ptxas, "-v", f"-arch=sm_{target}", "-o", str(binary), str(source))
    found = {
        "registers": _number(r"Used (\d+) registers", said),
        "spilled_bytes": _number(r"(\d+) bytes spill stores", said) + _number(r"(\d+) bytes spill loads", said),
        "shared_bytes": _number(r"(\d+) bytes smem", said),
    }
    if nvdisasm is not None and target >= OLDEST_READ:
        code = re.findall(r"^\s+/\*[0-9a-f]{4,}\*/\s+(.*?);", _run(nvdisasm, "-c", str(binary)), re.MULTILINE)
        found["machine_instructions"] = len(code)
        found["fused"] = sum(bool(FUSED_IN_MACHINE_CODE.search(line)) for line in code)
    return found


def compile_all() -> Iterator[Compiled]:
    """Compile every kernel for every architecture."""
    for name, (function, signature) in sorted(kernels().items()):
        for target in TARGETS:
            ptx = ptx_of(function, signature, target)
            instructions = len(re.findall(r"^\t[a-z@].*;", ptx, re.MULTILINE))
            figures = assembled(ptx, target)
            # An exact quotient or root is a sequence of fused operations in machine code, and nothing else may be one.
            expected = re.search(r"\b(div|sqrt)\.rn", ptx) is not None
            fused = ("a fused operation in machine code",) if figures.pop("fused", 0) and not expected else ()
            yield Compiled(
                kernel=name, target=target, instructions=instructions, faults=(*faults_of(ptx), *fused), **figures
            )


def main() -> int:
    """Print the table, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, help="write the table to this page")
    page = parser.parse_args().page
    found = list(compile_all())
    text = "\n".join(table(found))
    bad = [one for one in found if one.faults or one.spilled_bytes]
    if page is not None and not bad:
        page.write_text(HEAD.format(versions=", ".join(f"{name} {version(name)}" for name in USED)) + f"\n{text}\n")
    print(text)
    for one in bad:
        print(f"{one.kernel} on sm_{one.target}: {', '.join(one.faults)}; {one.spilled_bytes} bytes spilled")
    return bool(bad)


HEAD = """# What the CUDA kernels compile to

Made by `make ptx`, which is `python -m benchmarks.ptx --page docs/results/ptx.md`, without a GPU. No kernel was timed.

Instructions of PTX / registers a thread / instructions of machine code, for each architecture; shared memory in bytes. No
PTX holds a fused multiply-add on floats, an operation on floats without explicit rounding, or an atomic operation; nothing
spills. Made with {versions}.
"""


def _cell(one: Compiled) -> str:
    numbers = (one.instructions, one.registers, one.machine_instructions)
    return " / ".join("–" if number is None else str(number) for number in numbers)


def table(found: list[Compiled]) -> Iterator[str]:
    """Lines of the table: a kernel a row, an architecture a column."""
    yield "| kernel | shared | " + " | ".join(f"sm_{target} ({name})" for target, name in TARGETS.items()) + " |"
    yield "|---" * (len(TARGETS) + 2) + "|"
    for name in dict.fromkeys(one.kernel for one in found):
        row = [one for one in found if one.kernel == name]
        yield f"| {name} | {row[0].shared_bytes} | " + " | ".join(map(_cell, row)) + " |"


if __name__ == "__main__":
    sys.exit(main())
