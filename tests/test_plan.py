import pytest

from sparse_ring.plan import Described, Plan
from sparse_ring.recipe import BF16, Dense, GradSA, TopK

NAMED = [("w", (100, 100), "float32"), ("b", (100,), "float32"), ("half", (100, 100), "bfloat16"),
         ("double", (100, 100), "float64"), ("empty", (0, 5), "float32")]  # fmt: skip


def plan_of(recipe, named=NAMED):
    return Plan.of([Described(*one, recipe) for one in named])


def test_sparse_recipes_send_messages_for_what_float32_can_hold():
    plan = plan_of(TopK(), NAMED)
    assert [p.in_message for p in plan.parameters] == [True, True, True, False, False]
    assert [p.compressed for p in plan.parameters] == [True, False, True, False, False]
    assert [p.number for p in plan.parameters] == [0, 1, 2, 3, 4]
    assert [p.numel for p in plan.parameters] == [10_000, 100, 10_000, 10_000, 0]


@pytest.mark.parametrize("recipe", [Dense(), BF16()])
def test_dense_recipes_use_the_ring(recipe):
    assert not any(p.in_message or p.compressed for p in plan_of(recipe, NAMED).parameters)


def test_the_hash_changes_with_everything_that_must_agree():
    hashes = {
        plan_of(GradSA(), NAMED).hash,
        plan_of(GradSA(density=0.02), NAMED).hash,
        plan_of(TopK(), NAMED).hash,
        plan_of(GradSA(), NAMED[:-1]).hash,
        plan_of(GradSA(), [("v", *NAMED[0][1:]), *NAMED[1:]]).hash,
    }
    assert len(hashes) == 5
    assert plan_of(GradSA(), NAMED).hash == plan_of(GradSA(), NAMED).hash
    assert all(0 <= value < 2**32 for value in hashes)


def test_a_parameter_that_u32_cannot_index_is_refused_by_name():
    with pytest.raises(ValueError, match="Parameter 'huge' has 4294967296 elements"):
        plan_of(Dense(), [("huge", (2**16, 2**16), "float32")])
