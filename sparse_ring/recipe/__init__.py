"""A recipe says how one model's gradients are compressed; one file each, and one line in the table below."""

from __future__ import annotations

from typing import Any

from sparse_ring.errors import ConfigError
from sparse_ring.recipe.base import Recipe, SparseRecipe
from sparse_ring.recipe.bf16 import BF16
from sparse_ring.recipe.dense import Dense
from sparse_ring.recipe.gradsa import GradSA
from sparse_ring.recipe.topk import TopK

RECIPES: dict[str, type[Recipe]] = {"dense": Dense, "bf16": BF16, "topk": TopK, "gradsa": GradSA}


def recipe_named(name: str, **settings: Any) -> Recipe:
    """Return the recipe of a name in ``RECIPES`` (any case) with the given settings; ConfigError lists the known names.

    Settings that the recipe does not have are refused by TypeError, as by its constructor.
    """
    if name.lower() not in RECIPES:
        raise ConfigError("recipe", name, f"one of {', '.join(RECIPES)}")
    return RECIPES[name.lower()](**settings)


__all__ = ["BF16", "RECIPES", "Dense", "GradSA", "Recipe", "SparseRecipe", "TopK", "recipe_named"]
