"""What a built wheel may contain, and the tag that says where it runs: ``python -m tests.wheel.audit WHEEL FOLDER``.

Checks the native module, then lets auditwheel give the wheel its manylinux tag in ``FOLDER``.
"""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from abi3info import DATAS, FUNCTIONS
from abi3info.models import Symbol
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

# What every Linux with Python has; anything else would have to come along.
ALLOWED_LIBRARIES = {"libstdc++.so.6", "libgcc_s.so.1", "libm.so.6", "libc.so.6", "libpthread.so.0", "ld-linux-x86-64.so.2",
                     "ld-linux-aarch64.so.1"}  # fmt: skip
OLDEST = (3, 10)
EXPORTED = {"PyInit__native"}


def problems(wheel: Path) -> list[str]:
    """Return what is wrong with a wheel's native modules, each with the module's name; empty where nothing is."""
    found = []
    with zipfile.ZipFile(wheel) as archive:
        modules = [name for name in archive.namelist() if name.endswith(".so")]
        for name in modules:
            found += [f"{name} {text}" for text in _problems_of(ELFFile(io.BytesIO(archive.read(name))))]
    return found if modules else ["the wheel has no native module"]


def _problems_of(elf: Any) -> Iterator[str]:
    dynamic = elf.get_section_by_name(".dynamic")
    assert isinstance(dynamic, DynamicSection)
    for tag in dynamic.iter_tags():
        if tag.entry.d_tag == "DT_NEEDED" and tag.needed not in ALLOWED_LIBRARIES:
            yield f"links against {tag.needed}"
        if tag.entry.d_tag in ("DT_RPATH", "DT_RUNPATH"):
            yield "looks for libraries in a path of the machine that built it"
    for symbol in elf.get_section_by_name(".dynsym").iter_symbols():
        defined = symbol.entry.st_shndx != "SHN_UNDEF"
        if defined and symbol.name not in EXPORTED:
            yield f"exports {symbol.name}"
        if not defined and symbol.name.startswith(("Py", "_Py")) and not _is_stable(symbol.name):
            yield f"needs {symbol.name}, which is not in the stable ABI of Python {OLDEST[0]}.{OLDEST[1]}"


def _is_stable(name: str) -> bool:
    known = FUNCTIONS.get(Symbol(name)) or DATAS.get(Symbol(name))
    return known is not None and (known.added.major, known.added.minor) <= OLDEST


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    wheel, folder = map(Path, sys.argv[1:])
    if found := problems(wheel):
        sys.exit(f"{wheel.name}:\n  " + "\n  ".join(found))
    print(f"{wheel.name}: stable ABI of Python 3.10, system libraries only, exports its init function alone")
    command = [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(folder), str(wheel)]
    subprocess.run(command, check=True)
    (tagged,) = folder.glob("*.whl")
    if "manylinux" not in tagged.name:
        sys.exit(f"auditwheel made {tagged.name}, which no index would take")
    print(f"made {tagged}")


if __name__ == "__main__":
    main()
