"""Which names a scope of Python's binds."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from yogadl.recipes._syntax import FUNCTIONS, binds

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True)
class Import:
    """What an import statement imports.

    Attributes:
        module: as it is written, without the dots of a relative one.
        level: the number of those.
        name: that is imported from the module, ``*`` for all, or empty.
    """

    module: str
    level: int = 0
    name: str = ""


@dataclass
class Scope:
    """A function, class, comprehension or lambda, and what it binds."""

    is_class: bool = False
    bound: set[str] = field(default_factory=set)
    imports: dict[str, list[Import]] = field(default_factory=dict)
    """All that may be bound to a name, such as of either branch."""
    not_here: set[str] = field(default_factory=set)
    """Declared as global."""
    outer: set[str] = field(default_factory=set)
    """Declared as nonlocal."""


def type_parameters(node: ast.AST) -> Iterator[str]:
    """The names of the type parameters of a function or class."""
    for parameter in getattr(node, "type_params", ()):
        yield parameter.name


def imports_of(node: ast.AST) -> list[Import]:
    """What an import statement imports; nothing for anything else."""
    if isinstance(node, ast.Import):
        return [Import(alias.name) for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [Import(node.module or "", node.level, alias.name) for alias in node.names]
    return []


def package_of(space: Mapping[str, Any]) -> str:
    """The name of the package that the relative imports of a module are of, by what that has."""
    return space.get("__package__") or str(space.get("__name__", "")).rpartition(".")[0]


def absolute(found: Import, package: str) -> str:
    """The name of the module of an import in a package; empty if there is none."""
    if not found.level:
        return found.module
    try:
        return importlib.util.resolve_name("." * found.level + found.module, package)
    except ImportError:
        return ""


def bind(node: ast.AST, scope: Scope) -> None:
    """Adds the names that a node binds in its scope."""
    bound = scope.bound
    if isinstance(node, ast.Name):
        if not isinstance(node.ctx, ast.Load):
            bound.add(node.id)
        return
    if isinstance(node, ast.AnnAssign) and not binds(node):
        return
    if isinstance(node, ast.Global):
        scope.not_here.update(node.names)
    elif isinstance(node, ast.Nonlocal):
        scope.outer.update(node.names)
    elif isinstance(node, ast.Import | ast.ImportFrom):
        for alias, found in zip(node.names, imports_of(node), strict=True):
            if isinstance(node, ast.Import) and alias.asname is None:
                found = Import(alias.name.partition(".")[0])  # noqa: PLW2901 # that is bound
                scope.imports.setdefault(found.module, []).append(found)
            else:
                scope.imports.setdefault(alias.asname or alias.name, []).append(found)
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
        if node.name is not None:
            bound.add(node.name)
    elif isinstance(node, ast.MatchMapping) and node.rest is not None:
        bound.add(node.rest)
    if isinstance(node, FUNCTIONS):
        if not isinstance(node, ast.Lambda):
            bound.add(node.name)
            _bind_all(node.decorator_list, scope)
        _bind_all(node.args.defaults, scope)
        _bind_all(node.args.kw_defaults, scope)
    elif isinstance(node, ast.ClassDef):
        bound.add(node.name)
        _bind_all((*node.decorator_list, *node.bases, *node.keywords), scope)
    elif isinstance(node, COMPREHENSIONS):
        _bind_walrus(node, scope)
    else:
        _bind_all(ast.iter_child_nodes(node), scope)


def _bind_all(nodes: Iterable[ast.AST | None], scope: Scope) -> None:
    for node in nodes:
        if node is not None:
            bind(node, scope)


def _bind_walrus(node: ast.AST, scope: Scope) -> None:
    """In a comprehension, ``:=`` binds in the scope around it."""
    if isinstance(node, ast.NamedExpr) and isinstance(node.target, ast.Name):
        scope.bound.add(node.target.id)
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, FUNCTIONS):
            _bind_walrus(child, scope)
