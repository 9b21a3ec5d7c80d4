from __future__ import annotations

from collections.abc import Hashable

from sparse_ring.engine.fusion import buckets
from sparse_ring.engine.operation import Agreed
from tests.engine.ranks import Gather


class Other(Gather):
    pass


def names(items: list[Gather], threshold: int) -> list[list[str]]:
    agreed = [Agreed(item, (item.request,)) for item in items]
    return [[member.operation.request.name for member in bucket] for bucket in buckets(agreed, threshold)]


def item(name: str, key: Hashable, nbytes: int = 10) -> Gather:
    return Gather(name, key=key, nbytes=nbytes)


def test_a_bucket_closes_once_it_holds_the_threshold() -> None:
    assert names([item(name, "k") for name in "abcde"], 25) == [["a", "b", "c"], ["d", "e"]]
    assert names([item(name, "k") for name in "abcde"], 20) == [["a", "b"], ["c", "d"], ["e"]]
    assert names([item("a", "k", 99), item("b", "k", 1), item("c", "k", 99)], 20) == [["a"], ["b", "c"]]


def test_keys_collect_side_by_side_and_none_travels_alone() -> None:
    items = [item("a", 1), item("b", 2), item("c", None), item("d", 1), item("e", None), item("f", 2)]
    assert names(items, 1000) == [["a", "d"], ["b", "f"], ["c"], ["e"]]


def test_classes_do_not_share_a_bucket() -> None:
    assert names([item("a", 1), Other("b", key=1, nbytes=10), item("c", 1)], 1000) == [["a", "c"], ["b"]]


def test_a_threshold_of_zero_sends_each_alone() -> None:
    assert names([item("a", 1), item("b", 1, 0), item("c", 1)], 0) == [["a"], ["b"], ["c"]]


def test_nothing_gives_nothing() -> None:
    assert names([], 10) == []
