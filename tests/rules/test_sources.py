"""Rules that hold for every source file."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rules.source import ROOT, modules, tree

ENVIRONMENT = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}
LONGEST_FILE = 350
CODE_FOLDERS = ("sparse_ring", "launcher", "tests", "examples", "benchmarks", "docs")


@pytest.mark.parametrize("name", sorted(set(modules()) - {"sparse_ring.config"}))
def test_environment_is_read_in_config_only(name: str) -> None:
    used = [
        ast.unparse(node)
        for node in ast.walk(tree(name))
        if (isinstance(node, ast.Attribute) and node.attr in ENVIRONMENT and ast.unparse(node.value) == "os")
        or (isinstance(node, ast.ImportFrom) and node.module == "os" and ENVIRONMENT & {a.name for a in node.names})
    ]
    assert used == []


def public_definitions(body: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    for node in ast.iter_child_nodes(body):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name.startswith("_") or any(ast.unparse(d).endswith(".setter") for d in node.decorator_list):
                continue
            yield prefix + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from public_definitions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.If | ast.Try):
            yield from public_definitions(node, prefix)


@pytest.mark.parametrize("name", sorted(modules()))
def test_public_things_have_docstrings(name: str) -> None:
    documented = {cls for cls, node in public_definitions(tree(name)) if isinstance(node, ast.ClassDef) and node.bases}
    missing = [
        public
        for public, node in public_definitions(tree(name))
        # A method that fulfils a base's contract is documented there.
        if not ast.get_docstring(node) and public.rpartition(".")[0] not in documented  # type: ignore[arg-type]
    ]
    assert ast.get_docstring(tree(name)), f"{name} has no docstring"
    assert missing == []


def test_files_are_short() -> None:
    files = [path for folder in CODE_FOLDERS for path in (ROOT / folder).rglob("*.py")]
    files += [path for path in (ROOT / "native").iterdir() if path.suffix in (".cpp", ".h")]
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in files}
    assert {name: length for name, length in lengths.items() if length > LONGEST_FILE} == {}


def test_every_module_is_named_in_a_test() -> None:
    """Directly, by its package (whose table has the variants), or by one of the public things it defines."""
    texts = [path.read_text() for path in (ROOT / "tests").rglob("*.py") if path.parent != Path(__file__).parent]
    words = set(re.findall(r"[\w.]+|\w+", "\n".join(texts)))
    words |= {word for dotted in words for word in dotted.split(".")}
    untested = [
        name
        for name, path in modules().items()
        if path.name != "__init__.py"
        and not {name, name.rpartition(".")[0]} & (words - {"sparse_ring"})
        and not words & {public for public, _ in public_definitions(tree(name)) if "." not in public}
    ]
    assert not untested, untested


def test_environment_page_is_up_to_date() -> None:
    specification = importlib.util.spec_from_file_location("environment_page", ROOT / "docs" / "environment.py")
    assert specification is not None
    assert specification.loader is not None
    page = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(page)
    assert (ROOT / "docs" / "environment.md").read_text() == page.render(), "run: make docs"
