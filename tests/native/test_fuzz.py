"""Mutated messages under the sanitizers: refused by name, or decoded within bounds. ``make fuzz`` runs a million."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.native.fuzz import figures_of
from tests.native.sanitized import build, run, runtime

REPAIRED, UNREPAIRED = 20_000, 1_000


@pytest.mark.skipif(runtime() is None, reason="g++ brings no AddressSanitizer here")
def test_mutated_messages(tmp_path: Path) -> None:
    library = runtime()
    assert library is not None
    counts = ["--repaired", str(REPAIRED), "--unrepaired", str(UNREPAIRED)]
    result = run(build(tmp_path), library, *counts, timeout=900)
    assert result.returncode == 0, result.stdout
    figures = figures_of(result.stdout)
    assert (figures["repaired"], figures["unrepaired"]) == (REPAIRED, UNREPAIRED)
    # Both ends are reached: mutations are neither all fatal nor all harmless.
    assert min(figures["decoded"], figures["refused"]) > REPAIRED // 10


def test_output_that_misses_a_message_is_not_taken_for_success() -> None:
    whole = (
        "  9 frames: decoded\n  2 frames: damage\nrepaired 10: 9 frames decoded, 2 refused\nunrepaired 5: 5 refused\n"
    )
    assert figures_of(whole) == {"repaired": 10, "decoded": 9, "refused": 2, "reasons": 1, "unrepaired": 5}
    with pytest.raises(ValueError, match="unexpected output"):
        figures_of(whole.replace("5: 5", "5: 4"))
    with pytest.raises(ValueError, match="unexpected output"):
        figures_of("")
