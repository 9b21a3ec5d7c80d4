"""The project's source files and what they import, read as text."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@cache
def modules() -> dict[str, Path]:
    """Every module of the package and the launcher by its installed name."""
    found = {}
    for top, folder in (("sparse_ring", ROOT / "sparse_ring"), ("sparse_ring.launcher", ROOT / "launcher")):
        for path in sorted(folder.rglob("*.py")):
            parts = [top, *path.relative_to(folder).with_suffix("").parts]
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def tree(name: str) -> ast.Module:
    return ast.parse(modules()[name].read_text())


def imports(name: str, body: ast.AST | None = None) -> Iterator[str]:
    """Every module that ``name`` imports, lazily too, but not what only type checkers see."""
    for node in ast.iter_child_nodes(body or tree(name)):
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for branch in node.orelse:
                yield from imports(name, branch)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from _from(name, node)
        else:
            yield from imports(name, node)


def _from(name: str, node: ast.ImportFrom) -> Iterator[str]:
    if node.level:
        package = name if modules()[name].name == "__init__.py" else name.rpartition(".")[0]
        base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1])
        base = f"{base}.{node.module}" if node.module else base
    else:
        base = node.module or ""
    for alias in node.names:
        whole = f"{base}.{alias.name}"
        yield whole if whole in modules() or base == "sparse_ring" else base
