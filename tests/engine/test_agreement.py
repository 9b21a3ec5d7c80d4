from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparse_ring.engine.agreement import Agreement, Decision
from sparse_ring.engine.frames import Frame, pack_frame, pack_request, unpack_frame
from sparse_ring.engine.operation import Request
from sparse_ring.errors import MessageError


class World:
    """Agreements of all ranks that swap their frames as bytes."""

    def __init__(self, size: int, capacity: int = 4096) -> None:
        self.ranks = [Agreement(rank, size) for rank in range(size)]
        for agreement in self.ranks:
            agreement.cache_capacity = capacity
        self.entries: list[list[bytes]] = []

    def round(self, *said: list[Request]) -> list[Decision]:
        own = [[agreement.entry(item) for item in items] for agreement, items in zip(self.ranks, said, strict=True)]
        self.entries = [[entry for entry, _ in items] for items in own]
        data = [pack_frame(Frame(0), entries) for entries in self.entries]
        answers = []
        for rank, agreement in enumerate(self.ranks):
            frames = {
                peer: unpack_frame(data[peer], peer, agreement.cached) for peer in range(len(said)) if peer != rank
            }
            frames[rank] = Frame(0, [item for _, item in own[rank]])
            answers.append(agreement.process(frames))
        for answer in answers[1:]:
            assert [(item.name, item.requests, str(item.error)) for item in answer] == [
                (item.name, item.requests, str(item.error)) for item in answers[0]
            ]
        return answers[0]

    def lengths(self) -> list[list[int]]:
        return [[len(entry) for entry in entries] for entries in self.entries]


def r(name: str, **changes: Any) -> Request:
    return Request(**{"name": name, "kind": "allreduce", "dtype": "float32", "shape": (4,), **changes})


def names(decisions: list[Decision]) -> list[str]:
    return [decision.name for decision in decisions]


def test_a_name_is_agreed_when_the_last_rank_has_said_it() -> None:
    world = World(3)
    assert world.round([r("a"), r("b")], [r("b")], []) == []
    assert world.round([], [r("a")], []) == []
    assert world.ranks[0].missing("a", {}) == [2]
    assert world.ranks[0].missing("b", {2: Frame(0, [r("b")])}) == []
    assert world.ranks[1].missing("never", {0: Frame(0, [r("never")])}) == [1, 2]
    assert names(world.round([], [], [r("b"), r("a")])) == ["b", "a"]


def test_the_order_is_that_of_completion_by_rank() -> None:
    world = World(3)
    assert names(world.round([r("a"), r("b"), r("c")], [r("c"), r("b"), r("a")], [r("b"), r("c"), r("a")])) == [
        "b",
        "c",
        "a",
    ]


def test_agreed_names_are_remembered_in_three_bytes() -> None:
    world = World(2)
    full = [len(pack_request(r("a"))), len(pack_request(r("b")))]
    world.round([r("a"), r("b")], [r("b"), r("a")])
    assert world.lengths() == [full, full]
    (first, second) = world.round([r("b"), r("a")], [r("a"), r("b", absent=True)])
    assert world.lengths() == [[3, 3], [3, 3]]
    assert (first.name, second.name) == ("a", "b")
    assert first.requests == (r("a"), r("a"))
    assert second.requests == (r("b"), r("b", absent=True))


def test_a_changed_request_is_sent_in_full_and_then_remembered() -> None:
    world = World(2)
    short, long = r("a", shape=(1,), ragged=True), r("a", shape=(9,), ragged=True)
    world.round([short], [short])
    assert world.round([short], [long])[0].requests == (short, long)
    assert world.lengths() == [[3], [len(pack_request(long))]]
    assert world.round([short], [long])[0].requests == (short, long)
    assert world.lengths() == [[3], [3]]


def test_the_capacity_keeps_the_first_names() -> None:
    world = World(2, capacity=2)
    for _ in range(3):
        decisions = world.round(*[[r("a"), r("b"), r("c"), r("d")]] * 2)
        assert names(decisions) == ["a", "b", "c", "d"]
    full = len(pack_request(r("c")))
    assert world.lengths() == [[3, 3, full, full]] * 2
    assert World(1, capacity=0).round([r("a")])[0].error is None


def test_a_mismatch_is_told_to_all_and_forgotten() -> None:
    world = World(2)
    world.round([r("a")], [r("a")])
    (decision,) = world.round([r("a")], [r("a", dtype="float64", absent=True)])
    assert str(decision.error) == (
        "Tensor 'a': Mismatched data types: One rank had type float32, but another rank had type float64. "
        "(rank 0 had float32; rank 1 had float64)"
    )
    assert world.round([r("a")], [r("a")])[0].error is None
    assert world.lengths() == [[3], [3]]


def test_a_rank_that_repeats_an_open_name_is_refused() -> None:
    agreement = Agreement(0, 2)
    agreement.process({0: Frame(0), 1: Frame(0, [r("a")])})
    with pytest.raises(MessageError, match=r"Message from rank 1: control frame repeats 'a'"):
        agreement.process({0: Frame(1), 1: Frame(1, [r("a")])})


def test_an_id_that_was_never_given_is_refused() -> None:
    with pytest.raises(LookupError, match="cache id 0 of 0"):
        Agreement(0, 1).cached(0, 0, False)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(1, 4), st.integers(0, 6))
def test_all_ranks_agree_whatever_the_order(data: st.DataObject, size: int, capacity: int) -> None:
    world = World(size, capacity)
    every = [f"t{number}" for number in range(8)]
    for _ in range(3):
        left = [data.draw(st.permutations(every)) for _ in range(size)]
        agreed: list[str] = []
        while any(left):
            cuts = [data.draw(st.integers(0, len(items))) for items in left]
            if not any(cuts):
                cuts = [len(items) for items in left]
            agreed += names(world.round(*[[r(n) for n in items[:cut]] for items, cut in zip(left, cuts, strict=True)]))
            left = [items[cut:] for items, cut in zip(left, cuts, strict=True)]
        assert sorted(agreed) == every
    cached = [entry for entry in itertools.chain(*world.entries) if len(entry) == 3]
    assert len(cached) <= capacity * size


def test_payloads_of_early_ranks_wait_for_the_last_one() -> None:
    agreement = Agreement(1, 3)
    early = Frame(0, [r("b"), r("a"), r("c")], payloads={1: b"from 0", 2: b"c of 0"})
    assert agreement.process({0: early, 1: Frame(0), 2: Frame(0, [r("a", absent=True)])}) == []
    late = {
        0: Frame(1),
        1: Frame(1, [r("a"), r("c")], payloads={0: b"from 1", 1: b"c of 1"}),
        2: Frame(1, [r("c")]),
    }
    a, c = agreement.process(late)
    assert (a.name, a.payloads) == ("a", (b"from 0", b"from 1", None))
    # Rank 2 is there and has sent no data, so the others' is of no use.
    assert (c.name, c.payloads) == ("c", ())
