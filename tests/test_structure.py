"""Imports go one way: downwards."""

from __future__ import annotations

import ast
import pathlib
from collections.abc import Iterator

import pytest

pytestmark = pytest.mark.once

ROOT = pathlib.Path(__file__).resolve().parent.parent


def modules(folder: pathlib.Path, prefix: str) -> dict[str, pathlib.Path]:
    """The modules below a folder, by their full names."""
    found = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        found[".".join(part for part in (prefix, *parts) if part and part != "__init__")] = path
    return found


def imported(path: pathlib.Path, known: dict[str, pathlib.Path]) -> Iterator[str]:
    """The modules that one imports: at once, when it needs them, or for its types."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for name in node.names:
                full = f"{node.module}.{name.name}"
                if full in known or node.module in known:
                    yield full if full in known else node.module


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """Modules of which each imports the next and the last the first; none if there are none."""
    done: set[str] = set()

    def search(name: str, above: list[str]) -> list[str]:
        if name in above:
            return above[above.index(name) :]
        if name not in done:
            for other in sorted(graph[name]):
                if found := search(other, [*above, name]):
                    return found
            done.add(name)
        return []

    for name in graph:
        if found := search(name, []):
            return found
    return []


def graph_of(known: dict[str, pathlib.Path]) -> dict[str, set[str]]:
    return {name: set(imported(path, known)) - {name} for name, path in known.items()}


def test_cycles_are_found() -> None:
    assert cycle({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]


@pytest.mark.parametrize(("folder", "prefix"), [("yogadl", "yogadl"), ("benchmarks", "")])
def test_no_module_imports_what_imports_it(folder: str, prefix: str) -> None:
    graph = graph_of(modules(ROOT / folder, prefix))
    assert sum(map(len, graph.values())) > len(graph) / 2
    assert cycle(graph) == []


def test_no_package_of_storages_imports_what_imports_it() -> None:
    """A change of any of them can be understood without those above."""

    def package(name: str) -> str:
        parts = name.split(".")
        return parts[2] if parts[:2] == ["yogadl", "storage"] and len(parts) > 3 else ""

    graph: dict[str, set[str]] = {}
    for name, others in graph_of(modules(ROOT / "yogadl", "yogadl")).items():
        found = {package(other) for other in others} - {package(name)}
        graph.setdefault(package(name), set()).update(found - {""})
    packages = graph.keys() - {""}
    assert len(packages) > 5
    assert cycle({name: graph[name] for name in packages}) == []
