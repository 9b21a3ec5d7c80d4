import pytest

from sparse_ring.error_feedback import Residual
from sparse_ring.errors import ConfigError
from sparse_ring.kernels.table import kernels_for
from sparse_ring.recipe import (
    BF16,
    CLTK,
    QSGD,
    RECIPES,
    AdaptiveBits,
    Dense,
    GradSA,
    Int8,
    PowerSGD,
    SignSGD,
    TernGrad,
    TopK,
    TwoBit,
    recipe_named,
)  # fmt: skip


def test_names_lead_to_recipes():
    assert {name: type(recipe_named(name)) for name in ("dense", "bf16", "topk", "gradsa")} == {
        "dense": Dense, "bf16": BF16, "topk": TopK, "gradsa": GradSA,
    }  # fmt: skip
    assert all(type(recipe_named(name)).__name__.lower() == name for name in RECIPES)
    assert recipe_named("GradSA", density=0.5) == GradSA(density=0.5)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ConfigError, match="recipe is 'magic', but must be one of dense, bf16, fp16, topk"):
        recipe_named("magic")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"density": 0.0}, "density is 0.0, but must be a number above 0 and at most 1"),
        ({"density": 1.5}, "density is 1.5"),
        ({"density": "0.1"}, "density is '0.1', but must be a number"),
        ({"minimum_elements": 0}, "minimum_elements is 0, but must be at least 1"),
        ({"values": "int5"}, "values is 'int5'"),
        ({"small": "sign"}, "small is 'sign', but must be one of float32, bfloat16, int8"),
        ({"indices": "lz4"}, "indices is 'lz4'"),
    ],
)
@pytest.mark.parametrize("recipe", [TopK, GradSA])
def test_settings_are_checked(recipe, settings, text):
    with pytest.raises(ConfigError, match=text):
        recipe(**settings)


def test_negative_warmup_is_refused():
    with pytest.raises(ConfigError, match="warmup_steps is -1, but must be 0 or more"):
        GradSA(warmup_steps=-1)


def test_biases_and_small_tensors_stay_dense():
    recipe = TopK(minimum_elements=100)
    assert recipe.compresses((10, 10))
    assert not recipe.compresses((9, 11))
    assert not recipe.compresses((1000,))
    assert not recipe.compresses(())


def test_at_least_one_element_is_kept_and_never_more_than_there_are():
    recipe = TopK(density=0.001)
    assert [recipe.keep(numel, 0) for numel in (1, 10, 1000, 100_000)] == [1, 1, 1, 100]
    assert TopK(density=1.0).keep(7, 0) == 7


def test_density_falls_in_equal_stages():
    recipe = GradSA(density=0.01, warmup_steps=8)
    assert [recipe.density_at(step) for step in range(10)] == [
        1.0, 1.0, 0.25, 0.25, 0.0625, 0.0625, 0.015625, 0.015625, 0.01, 0.01,
    ]  # fmt: skip
    assert recipe.warmup == 8
    assert GradSA(density=0.25, warmup_steps=2).density_at(1) == 1.0
    assert GradSA(density=1.0, warmup_steps=2).density_at(0) == 1.0
    assert GradSA(density=0.01, warmup_steps=0).density_at(0) == 0.01


def test_small_parameters_have_a_memory_only_where_coding_loses_something():
    kernels = kernels_for("reference")
    assert TopK().small_code is None
    for small in ("bfloat16", "int8"):
        recipe = GradSA(small=small)
        assert isinstance(recipe.small_feedback(3, kernels), Residual)
        assert recipe.small_code.name == small


@pytest.mark.parametrize(
    ("recipe", "settings", "text"),
    [
        (TernGrad, {"clip_sigmas": 0}, "clip_sigmas is 0, but must be above 0"),
        (TernGrad, {"exchange": "owners"}, "exchange is 'owners', but must be auto or gather"),
        (SignSGD, {"exchange": "gather"}, "exchange is 'gather', but must be auto or owners"),
        (SignSGD, {"warmup_steps": 5}, "warmup_steps is 5, but must be 0"),
        (PowerSGD, {"seed": -1}, "seed is -1, but must be 0 or more"),
        (PowerSGD, {"rank": 0}, "rank is 0, but must be a whole number from 1 to 64"),
        (CLTK, {"indices": "lz4"}, "indices is 'lz4', but must be one of golomb"),
        (QSGD, {"bits": 3}, "bits is 3, but must be 2, 4 or 8"),
        (Int8, {"levels": "odd"}, "levels is 'odd', but must be one of even, tree"),
        (Int8, {"exchange": "ring"}, "exchange is 'ring', but must be one of auto, gather, owners"),
        (TwoBit, {"threshold": -1.0}, "threshold is -1.0, but must be a positive number"),
        (AdaptiveBits, {"period": 0}, "period is 0, but must be at least 1"),
    ],
)
def test_settings_that_would_do_nothing_are_refused(recipe, settings, text):
    with pytest.raises(ConfigError, match=text):
        recipe(**settings)
