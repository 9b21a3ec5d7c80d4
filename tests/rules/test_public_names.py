"""The package's lazily loaded names."""

from __future__ import annotations

import ast
import importlib

import pytest

import sparse_ring
import sparse_ring.torch
from sparse_ring.recipe import RECIPES
from tests.rules.source import tree

LAZY = {name: home for home, names in sparse_ring._HOMES.items() for name in names}


@pytest.mark.parametrize("name", sorted(LAZY))
def test_name_is_what_its_home_defines(name: str) -> None:
    assert getattr(sparse_ring, name) is getattr(importlib.import_module(f"sparse_ring.{LAZY[name]}"), name)


def test_type_checkers_see_the_same_names() -> None:
    seen = {
        alias.asname: (node.module or "").removeprefix("sparse_ring.")
        for node in ast.walk(tree("sparse_ring"))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sparse_ring.")
        for alias in node.names
        if alias.name != "*"
    }
    # Recipes come by the star: they are known to their own table only.
    assert {**seen, "Recipe": "recipe"} == LAZY


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_every_recipe_is_there_by_its_name(name: str) -> None:
    recipe = RECIPES[name]
    assert getattr(sparse_ring, recipe.__name__) is recipe
    assert getattr(sparse_ring.torch, recipe.__name__) is recipe
    assert getattr(sparse_ring.torch.Compression, name) == recipe()


def test_all_and_dir_list_them() -> None:
    assert set(sparse_ring.__all__) == {*LAZY, "__version__"}
    assert set(sparse_ring.__all__) <= set(dir(sparse_ring))


def test_version_is_a_release() -> None:
    assert sparse_ring.__version__ == "0.1.0"


def test_unknown_name_lists_the_known() -> None:
    with pytest.raises(
        AttributeError, match=r"^module 'sparse_ring' has no attribute 'TopKay'; it has AdaptiveBits, BF16, "
    ):
        sparse_ring.TopKay  # noqa: B018
