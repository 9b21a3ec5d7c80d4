"""Every recipe in the table keeps the contract, on one to four ranks."""

import pytest

from sparse_ring.recipe import RECIPES
from tests.contracts import recipe as contract

# A recipe with settings of its own is a line here; all others run with their defaults.
VARIANTS = {
    "topk": [
        {"density": 0.1},
        {"density": 0.05, "values": "int4", "small": "int8"},
        {"density": 0.1, "scope": "model"},
    ],
    "gradsa": [
        {"density": 0.1, "warmup_steps": 3},
        {"density": 0.1, "warmup_steps": 0, "values": "sign"},
        {"density": 0.1, "warmup_steps": 2, "compensation": "taylor"},
        {"density": 0.1, "warmup_steps": 2, "compensation": "taylor_adaptive+history"},
        {"density": 0.1, "warmup_steps": 2, "momentum": "global"},
        {"density": 0.1, "warmup_steps": 2, "momentum": "global", "compensation": "taylor+history", "scope": "model"},
    ],
    "dgc": [
        {"density": 0.1, "warmup_steps": 3},
        {"density": 0.1, "warmup_steps": 0, "scope": "model"},
    ],
    "threshold": [{}, {"threshold": 2.0}],
    "chunktopk": [{"density": 0.1}, {"density": 1.0}],
    "randomk": [{"density": 0.1}, {"density": 1.0}],
    "cltk": [{"density": 0.1}],
    "powersgd": [{"rank": 1}, {"rank": 4}],
    "qsgd": [{"bits": 2}, {"bits": 4}, {"bits": 8}],
    "int8": [{}, {"levels": "tree"}, {"residual": False}, {"exchange": "owners"}, {"exchange": "gather"}],
    "onebit": [{"warmup_steps": 0}, {"warmup_steps": 2}],
    "twobit": [{}, {"threshold": 1.5}],
    "adaptivebits": [{"period": 2}],
}
CASES = [
    pytest.param(RECIPES[name](**{"minimum_elements": 100, **settings}), id=f"{name}-{number}")
    for name in RECIPES
    if RECIPES[name]().compresses((1000, 1000))
    for number, settings in enumerate(VARIANTS.get(name, [{}]))
]
SIZES = [1, 2, 3, 4]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("recipe", CASES)
def test_replicas_are_identical(recipe, size):
    contract.check_replicas(recipe, size, seed=1)


@pytest.mark.parametrize("recipe", CASES)
def test_a_sum_is_identical_too(recipe):
    contract.check_replicas(recipe, 3, seed=2, average=False)


@pytest.mark.parametrize("recipe", CASES)
def test_all_kernels_give_the_same_bits(recipe):
    contract.check_kernels(recipe, seed=7)


@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("recipe", [case for case in CASES if not case.values[0].exempt])
def test_nothing_is_lost(recipe, size, average):
    contract.check_conservation(recipe, size, seed=3, average=average)


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("recipe", CASES)
def test_a_checkpoint_goes_on(recipe, size):
    contract.check_checkpoint(recipe, size, seed=4)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("recipe", CASES)
def test_a_rank_that_is_not_finite_is_left_out(recipe, size):
    contract.check_nonfinite(recipe, size, seed=5)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("recipe", CASES)
def test_what_ranks_skip(recipe, size):
    contract.check_absent(recipe, size, seed=6)
