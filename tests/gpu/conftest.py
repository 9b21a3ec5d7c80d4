"""The CUDA twin in numba's simulator, in a process of its own: numba reads the flag when it is first imported."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.kernel_cases import MOST_SIMULATED, SIMULATED

collect_ignore = [
    path.name for path in Path(__file__).parent.glob("test_*.py") if not SIMULATED and path.name != "test_process.py"
]
MOST_CASES = 6  # of one test of the shared suites; a simulated call takes about a tenth of a second
MOST_GOLDEN_BYTES = 50_000  # golden payloads of up to 20,480 elements fit: they show several Golomb blocks

MOST_RANK = 8  # of skinny factors

# Tests of the shared suites that need tens of thousands of elements, or hundreds of calls.
TOO_LARGE = {
    "test_block16_holds_whole_blocks",
    "test_every_half_and_its_neighbourhood",
    "test_crowded_positions_take_fewer_bits",
    "test_evenly_spread_positions_cost_little_more",
    "test_four4_chooses_by_the_distribution",
    "test_the_mean_over_keys_is_the_value",
}


@pytest.fixture(scope="session", autouse=True)
def _threads_take_turns() -> Iterator[None]:
    if not SIMULATED:
        yield
        return
    from tests.gpu.turns import take_turns

    with pytest.MonkeyPatch.context() as monkeypatch:
        take_turns(monkeypatch)
        yield


def _is_large(item: pytest.Item) -> bool:
    parameters = getattr(item, "callspec", None)
    values = parameters.params if parameters is not None else {}
    case = values.get("case")
    golden_bytes = case.get("bytes", 0) if isinstance(case, dict) else 0
    large = values.get("count", 0) > MOST_SIMULATED or values.get("rank", 0) > MOST_RANK
    return large or golden_bytes > MOST_GOLDEN_BYTES or getattr(item, "originalname", None) in TOO_LARGE


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of each test of the contract's classes, keep cases from its first to its last one, none that is too large."""
    if not SIMULATED:  # this sees the tests of other folders, too
        return
    groups: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        groups[item.nodeid.partition("[")[0]].append(item)
    kept = set()
    for group in groups.values():
        small = [item for item in group if not _is_large(item)]
        most = min(MOST_CASES, len(small)) if isinstance(group[0].parent, pytest.Class) else len(small)
        kept |= {small[round(case * (len(small) - 1) / max(1, most - 1))] for case in range(most)}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]
