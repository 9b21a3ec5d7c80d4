"""The stub of the native module says what the module has."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest

import sparse_ring
from sparse_ring import _native

STUB = ast.parse((Path(sparse_ring.__path__[0]) / "_native.pyi").read_text())
TABLE = next(node for node in STUB.body if isinstance(node, ast.ClassDef))
METHODS = {
    node.name: [a.arg for a in node.args.posonlyargs] for node in TABLE.body if isinstance(node, ast.FunctionDef)
}


def public_functions(namespace: Any) -> dict[str, list[str]]:
    """Names of the functions with those of their parameters."""
    return {
        name: list(inspect.signature(member).parameters)
        for name, member in vars(namespace).items()
        if not name.startswith("_")
    }


@pytest.mark.parametrize("table", [_native.scalar, _native.avx2, _native.avx512], ids=["scalar", "avx2", "avx512"])
def test_all_tables_have_the_functions_and_parameters_of_the_stub(table: Any) -> None:
    assert public_functions(table) == METHODS


def test_the_module_has_the_names_of_the_stub() -> None:
    names = {node.name for node in STUB.body if isinstance(node, ast.FunctionDef)}
    names |= {
        node.target.id for node in STUB.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    assert {name for name in vars(_native) if not name.startswith("_")} == names
    assert set(_native.supported()) <= names


def test_a_wrong_number_of_arguments_shows_the_signature() -> None:
    with pytest.raises(TypeError, match=r"all_finite\(n, x, /\)"):
        _native.scalar.all_finite(1)  # type: ignore[call-arg]
