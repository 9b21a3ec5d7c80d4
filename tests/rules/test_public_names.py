"""The package's lazily loaded names."""

from __future__ import annotations

import ast
import importlib

import pytest

import sparse_ring
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
    }
    assert seen == LAZY


def test_all_and_dir_list_them() -> None:
    assert set(sparse_ring.__all__) == {*LAZY, "__version__"}
    assert set(sparse_ring.__all__) <= set(dir(sparse_ring))


def test_version_is_a_release() -> None:
    assert sparse_ring.__version__ == "0.1.0"


def test_unknown_name_lists_the_known() -> None:
    with pytest.raises(AttributeError, match=r"^module 'sparse_ring' has no attribute 'TopKay'; it has BF16, Config, "):
        sparse_ring.TopKay  # noqa: B018
