"""Which names from outside of it a function reads, by Python's rules of scopes."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from yogadl.recipes._syntax import FUNCTIONS, Function

_LONGEST_NAME = 100
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True)
class Import:
    """What an import inside of a function binds a name to.

    Attributes:
        module: as it is written, without the dots of a relative one.
        level: the number of those.
        name: that is imported from the module, or empty.
    """

    module: str
    level: int = 0
    name: str = ""


@dataclass(frozen=True)
class Read:
    """A name that a function reads and does not bind, with the attributes that follow.

    Attributes:
        root: the name.
        chain: ``("a", "b")`` in ``root.a.b``.
        imported: what binds the name, if an import of the function does.
        constant: the first argument if it is called with a string that is written there; the index
            if it is indexed with one; else ``None``.
    """

    root: str
    chain: tuple[str, ...] = ()
    imported: Import | None = None
    constant: str | None = None

    def __str__(self) -> str:
        return ".".join((self.root, *self.chain))


@dataclass
class Reads:
    """What a function reads.

    Attributes:
        names: in the order of the code, each once.
        annotated: names in annotations of functions.
        writes: global variables that it gives a value to, or deletes.
        mentioned: all names and attributes that the function uses, its own too, and those that are
            written as strings.
        texts: all strings, and the constant pieces of others.
        asserts: whether it has an assertion.
        imports: that it makes, read or not.
    """

    names: dict[Read, None] = field(default_factory=dict)
    annotated: dict[Read, None] = field(default_factory=dict)
    writes: set[str] = field(default_factory=set)
    mentioned: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    asserts: bool = False
    imports: set[Import] = field(default_factory=set)


@dataclass
class _Scope:
    is_class: bool = False
    bound: set[str] = field(default_factory=set)
    imports: dict[str, list[Import]] = field(default_factory=dict)
    """All that may be bound to a name, such as of either branch."""
    not_here: set[str] = field(default_factory=set)
    """Declared as global."""
    outer: set[str] = field(default_factory=set)
    """Declared as nonlocal."""


def reads_of(function: Function) -> Reads:
    """What a function reads, without its decorators and default values."""
    visitor = _Visitor()
    visitor.function(function)
    return visitor.found


def reads_of_expression(expression: ast.expr) -> Reads:
    """What an expression reads."""
    visitor = _Visitor()
    visitor.visit(expression)
    return visitor.found


class _Visitor:
    def __init__(self) -> None:
        self.found = Reads()
        self._scopes: list[_Scope] = []
        self._in_annotation = False

    def function(self, node: Function) -> None:
        """Visits a function in a scope of its own."""
        self._annotations(node)
        scope = _Scope()
        args = node.args
        every = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
        scope.bound.update(arg.arg for arg in every if arg is not None)
        body = [node.body] if isinstance(node, ast.Lambda) else node.body
        scope.bound.update(_type_parameters(node))
        self._inside(scope, body)

    def _inside(self, scope: _Scope, body: Iterable[ast.AST]) -> None:
        body = list(body)
        for statement in body:
            _bind(statement, scope)
        self._bind_globals(scope)
        scope.bound -= scope.not_here | scope.outer
        self._scopes.append(scope)
        for statement in body:
            self.visit(statement)
        self._scopes.pop()

    def _bind_globals(self, scope: _Scope) -> None:
        self.found.writes |= scope.not_here & (scope.bound | scope.imports.keys())
        for name in sorted(scope.not_here & scope.imports.keys()):
            for found in scope.imports[name]:
                # Others may use it by that name.
                self.found.names[Read(name, (), found)] = None

    def _annotations(self, node: Function) -> None:
        args = node.args
        every = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
        found = [arg.annotation for arg in every if arg is not None and arg.annotation is not None]
        if not isinstance(node, ast.Lambda) and node.returns is not None:
            found.append(node.returns)
        was, self._in_annotation = self._in_annotation, True
        for annotation in found:
            self.visit(annotation)
        self._in_annotation = was

    def visit(self, node: Any) -> None:
        """Visits any node."""
        if isinstance(node, ast.Name | ast.Attribute):
            self._access(node)
        elif isinstance(node, ast.Call | ast.Subscript):
            self._use(node)
        elif isinstance(node, FUNCTIONS):
            self._define(node)
        elif isinstance(node, ast.ClassDef):
            self._define_class(node)
        elif isinstance(node, _COMPREHENSIONS):
            self._comprehend(node)
        elif isinstance(node, ast.AnnAssign):
            self._annotate(node)
        elif isinstance(node, ast.Constant):
            self._text(node.value)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return
        elif isinstance(node, ast.AugAssign):
            self._access(node.target, is_read=True)
            self.visit(node.value)
        else:
            self.found.asserts |= isinstance(node, ast.Assert)
            self.found.imports.update(imports_of(node))
            for child in ast.iter_child_nodes(node):
                self.visit(child)

    def _text(self, value: Any) -> None:
        if isinstance(value, str):
            self.found.texts.add(value)
            if len(value) <= _LONGEST_NAME:
                self.found.mentioned.update(value.split("."))

    def _annotate(self, node: ast.AnnAssign) -> None:
        self.visit(node.target)
        if node.value is not None:
            self.visit(node.value)
        if self._scopes and self._scopes[-1].is_class:
            self.visit(node.annotation)

    def _define(self, node: Function) -> None:
        if not isinstance(node, ast.Lambda):
            for decorator in node.decorator_list:
                self.visit(decorator)
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        self.function(node)

    def _define_class(self, node: ast.ClassDef) -> None:
        for child in (*node.decorator_list, *node.bases, *node.keywords):
            self.visit(child)
        scope = _Scope(is_class=True)
        scope.bound.update(_type_parameters(node))
        self._inside(scope, node.body)

    def _comprehend(self, node: Any) -> None:
        first = node.generators[0]
        # That one is read in the scope around it.
        self.visit(first.iter)
        scope = _Scope()
        for generator in node.generators:
            _bind(generator.target, scope)
        self._scopes.append(scope)
        for generator in node.generators:
            if generator is not first:
                self.visit(generator.iter)
            self.visit(generator.target)
            for condition in generator.ifs:
                self.visit(condition)
        elements = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
        for element in elements:
            self.visit(element)
        self._scopes.pop()

    def _use(self, node: ast.Call | ast.Subscript) -> None:
        """A call or an index, whose first argument may be a string."""
        if isinstance(node, ast.Call) and (name := _attribute_name(node)):
            self.visit(ast.Attribute(node.args[0], name, ast.Load()))
            for argument in node.args[2:]:
                self.visit(argument)
            return
        used = node.func if isinstance(node, ast.Call) else node.value
        first: Any = node.slice if isinstance(node, ast.Subscript) else next(iter(node.args), None)
        if isinstance(used, ast.Name | ast.Attribute):
            is_text = isinstance(first, ast.Constant) and isinstance(first.value, str)
            self._access(used, constant=first.value if is_text else None)
        else:
            self.visit(used)
        for child in ast.iter_child_nodes(node):
            if child is not used:
                self.visit(child)

    def _access(self, node: Any, constant: str | None = None, is_read: bool = False) -> None:
        chain: list[str] = []
        top = node
        while isinstance(top, ast.Attribute):
            chain.append(top.attr)
            top = top.value
        self.found.mentioned.update(chain)
        if not isinstance(top, ast.Name):
            self.visit(top)
            return
        self.found.mentioned.add(top.id)
        if isinstance(top.ctx, ast.Load) or is_read:
            self._read(top.id, tuple(reversed(chain)), constant)

    def _read(self, name: str, chain: tuple[str, ...], constant: str | None) -> None:
        into = self.found.annotated if self._in_annotation else self.found.names
        for depth, scope in enumerate(reversed(self._scopes)):
            if scope.is_class and depth:
                # Functions in a class do not see its names.
                continue
            if name in scope.not_here:
                break
            if name in scope.imports:
                for found in scope.imports[name]:
                    into[Read(name, chain, found, constant)] = None
                return
            if name in scope.bound and not scope.is_class:
                return
        into[Read(name, chain, None, constant)] = None


def _attribute_name(node: ast.Call) -> str:
    """What ``getattr`` or ``hasattr`` is asked for, if that is written there; else empty."""
    if not isinstance(node.func, ast.Name) or node.func.id not in ("getattr", "hasattr"):
        return ""
    name = node.args[1] if len(node.args) > 1 else None
    is_text = isinstance(name, ast.Constant) and isinstance(name.value, str)
    return name.value if is_text and not node.keywords else ""  # type: ignore[union-attr]


def _type_parameters(node: ast.AST) -> Iterator[str]:
    for parameter in getattr(node, "type_params", ()):
        yield parameter.name


def imports_of(node: ast.AST) -> list[Import]:
    """What an import statement imports; nothing for anything else."""
    if isinstance(node, ast.Import):
        return [Import(alias.name) for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [Import(node.module or "", node.level, alias.name) for alias in node.names]
    return []


def _bind(node: ast.AST, scope: _Scope) -> None:
    """Adds the names that a node binds in its scope."""
    bound = scope.bound
    if isinstance(node, ast.Name):
        if not isinstance(node.ctx, ast.Load):
            bound.add(node.id)
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
    elif isinstance(node, _COMPREHENSIONS):
        _bind_walrus(node, scope)
    else:
        _bind_all(ast.iter_child_nodes(node), scope)


def _bind_all(nodes: Iterable[ast.AST | None], scope: _Scope) -> None:
    for node in nodes:
        if node is not None:
            _bind(node, scope)


def _bind_walrus(node: ast.AST, scope: _Scope) -> None:
    """In a comprehension, ``:=`` binds in the scope around it."""
    if isinstance(node, ast.NamedExpr) and isinstance(node.target, ast.Name):
        scope.bound.add(node.target.id)
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, FUNCTIONS):
            _bind_walrus(child, scope)
