"""Decoder fuzzing under AddressSanitizer and UndefinedBehaviorSanitizer: ``make fuzz``.

    python -m tests.native.fuzz [--repaired N] [--unrepaired N] [--json PATH]

Builds the native module with the sanitizers and runs ``mutations.py`` in a Python that loads it.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import write_json
from tests.native.sanitized import build, run, runtime


def figures_of(printed: str) -> dict[str, int]:
    """What ``mutations.py`` printed, as numbers; raises ValueError where a message was neither refused nor decoded."""
    repaired = re.search(r"^repaired (\d+): (\d+) frames decoded, (\d+) refused$", printed, re.MULTILINE)
    unrepaired = re.search(r"^unrepaired (\d+): (\d+) refused$", printed, re.MULTILINE)
    if repaired is None or unrepaired is None or unrepaired[1] != unrepaired[2]:
        raise ValueError(f"unexpected output:\n{printed}")
    messages, decoded, refused = (int(number) for number in repaired.groups())
    reasons = len(re.findall(r"^ *\d+ frames: ", printed, re.MULTILINE)) - 1
    return {
        "repaired": messages,
        "decoded": decoded,
        "refused": refused,
        "reasons": reasons,
        "unrepaired": int(unrepaired[1]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repaired", type=int, default=1_000_000, help="mutated messages with right checksums")
    parser.add_argument("--unrepaired", type=int, default=10_000, help="mutated messages with the checksums they had")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures to this file")
    arguments = parser.parse_args()
    library = runtime()
    if library is None:
        sys.exit("g++ brings no AddressSanitizer here; install one that does.")
    with tempfile.TemporaryDirectory() as folder:
        counts = ["--repaired", str(arguments.repaired), "--unrepaired", str(arguments.unrepaired)]
        result = run(build(Path(folder)), library, *counts, timeout=6 * 3600)
    print(result.stdout, end="")
    if result.returncode == 0:
        write_json(arguments.json, "fuzz", figures_of(result.stdout))
    sys.exit(result.returncode)


if __name__ == "__main__":
    main()
