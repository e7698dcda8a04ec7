"""No import cycle in either package, imports inside functions and for types included."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src"
Graph = dict[str, set[str]]


def module_files(source: Path, package: str) -> dict[str, Path]:
    """Return the file of each module below ``source/package``, by dotted name."""
    files = {}
    for path in sorted((source / package).rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


def imported(node: ast.AST, module: str, is_package: bool) -> Iterator[tuple[str, str]]:
    """Yield (module, name) for each import of a statement; name is "" for a module."""
    if isinstance(node, ast.Import):
        yield from ((alias.name, "") for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            kept = module.split(".")[: -node.level + is_package or None]
            base = ".".join([*kept, *base.split(".")] if base else kept)
        yield from ((base, alias.name) for alias in node.names)


def import_graph(files: dict[str, Path]) -> Graph:
    """Return the modules that each module imports, wherever the import stands.

    ``from package import name`` counts as an import of the submodule ``package.name``
    where there is one, and as an import of ``package`` itself otherwise.
    """
    graph: Graph = {}
    for module, path in files.items():
        targets = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            for base, name in imported(node, module, path.stem == "__init__"):
                submodule = f"{base}.{name}"
                targets.add(submodule if submodule in files else base)
        graph[module] = targets & files.keys() - {module}
    return graph


def reachable(graph: Graph, start: str) -> set[str]:
    """Return the modules that ``start`` imports, directly or through others."""
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        new = graph[waiting.pop()] - seen
        seen |= new
        waiting.extend(new)
    return seen


def cycles(graph: Graph) -> list[set[str]]:
    """Return the strongly connected components of more than one module."""
    reach = {module: reachable(graph, module) for module in graph}
    components = {
        frozenset(other for other in reach[module] if module in reach[other])
        for module in graph
    }
    return sorted((set(c) for c in components if len(c) > 1), key=sorted)


def describe(graph: Graph, component: set[str]) -> str:
    """Return the imports inside a component, one line for each module."""
    return "\n".join(
        f"  {module} -> {', '.join(sorted(graph[module] & component))}"
        for module in sorted(component)
    )


def test_no_import_cycle():
    files = module_files(SOURCE, "fcforge") | module_files(SOURCE, "fcforge_consortium")
    graph = import_graph(files)
    found = [describe(graph, component) for component in cycles(graph)]
    assert not found, "import cycles:\n" + "\n\n".join(found)


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ("from pkg import first", [{"pkg.first", "pkg.second"}]),
        ("import pkg.first", [{"pkg.first", "pkg.second"}]),
        ("from . import first", [{"pkg.first", "pkg.second"}]),
        ("def f():\n    from .first import g", [{"pkg.first", "pkg.second"}]),
        (
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pkg.first",
            [{"pkg.first", "pkg.second"}],
        ),
        ("from pkg import NAME", [{"pkg", "pkg.first", "pkg.second"}]),
        ("from pkg import other", []),
    ],
)
def test_cycles_are_found_wherever_the_import_stands(tmp_path, second, expected):
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").write_text("from pkg.first import g\nNAME = g\n")
    (package / "first.py").write_text("from pkg.second import h\n")
    (package / "second.py").write_text(second + "\n")
    (package / "other.py").write_text("")
    assert cycles(import_graph(module_files(tmp_path, "pkg"))) == expected


# Imports that contracts of pyproject.toml ignore because they are for types only.
@pytest.mark.parametrize(
    ("path", "imported_module"),
    [
        (
            "fcforge_consortium/contributions/contribution.py",
            "fcforge_consortium.contributions.model",
        ),
        ("fcforge/experiments/store.py", "torch"),
    ],
)
def test_an_import_is_for_types_only(path, imported_module):
    tree = ast.parse((SOURCE / path).read_text(encoding="utf-8"))
    for_types = {
        node
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for statement in block.body
        for node in ast.walk(statement)
    }
    importing = {
        node
        for node in ast.walk(tree)
        if any(
            f"{base}.{name}".startswith(f"{imported_module}.")
            for base, name in imported(node, "", False)
        )
    }
    assert importing
    assert importing <= for_types
