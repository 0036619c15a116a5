"""Which names from outside of it a function reads, by Python's rules of scopes."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from yogadl.recipes._calls import attribute_name, is_own_logger, prints_to_file, text_of
from yogadl.recipes._owners import is_standard
from yogadl.recipes._scopes import (
    COMPREHENSIONS,
    Import,
    Scope,
    bind,
    imports_of,
    type_parameters,
)
from yogadl.recipes._special import LOOKING_UP, meant_by
from yogadl.recipes._syntax import FUNCTIONS, Function, hints_in_texts, is_of_none

_LONGEST_NAME = 100
# Which tell of all variables when they are called without arguments.
_LISTING = ("locals", "vars")
# Such as in np.r_[one, other] and np.bmat([[one, other]]).
_NO_TEXTS = (ast.Dict, ast.List, ast.Slice, ast.Tuple)


@dataclass(frozen=True)
class Read:
    """A name that a function reads and does not bind, with the attributes that follow.

    Attributes:
        root: the name.
        chain: ``("a", "b")`` in ``root.a.b``.
        imported: what binds the name, if an import of the function does.
        constant: the first argument if it is called with a string that is written there; the index
            if it is indexed with one, or what is looked for in it; else ``None``.
        is_stored: whether the index is only given a value, or deleted.
        is_tested: whether it is only asked whether it is true, or ``None``.
    """

    root: str
    chain: tuple[str, ...] = ()
    imported: Import | None = None
    constant: str | None = None
    is_stored: bool = False
    is_tested: bool = False

    def __str__(self) -> str:
        return ".".join((self.root, *self.chain))


@dataclass
class Reads:
    """What a function reads.

    Attributes:
        names: in the order of the code, each once.
        passed: what it imports for others that may read it, and not by its name.
        assumed: others, that are taken for what Python has by the name.
        annotated: names in annotations of functions.
        hints: those of the function itself, also in texts.
        inner_hints: likewise of functions in it that are decorated, or are handed to anything.
        handed: those of ``names`` that are used otherwise than by a call.
        writes: global variables that it gives a value to, or deletes.
        mentioned: all names and attributes that the function uses, its own too, and those that are
            written as strings.
        texts: all strings, and the constant pieces of others.
        looks_up: whether it may call what looks for names in text, see ``LOOKING_UP``.
        looks_up_given: the same with a text that is not written where that is called.
        asserts: whether it has an assertion.
        imports: that it makes, read or not.
    """

    names: dict[Read, None] = field(default_factory=dict)
    passed: dict[Read, None] = field(default_factory=dict)
    assumed: dict[Read, None] = field(default_factory=dict)
    annotated: dict[Read, None] = field(default_factory=dict)
    hints: dict[Read, None] = field(default_factory=dict)
    inner_hints: dict[Read, None] = field(default_factory=dict)
    handed: list[Read] = field(default_factory=list)
    writes: set[str] = field(default_factory=set)
    mentioned: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    looks_up: bool = False
    looks_up_given: bool = False
    asserts: bool = False
    imports: set[Import] = field(default_factory=set)


def reads_of(function: Function) -> Reads:
    """What a function reads, without its decorators and default values."""
    visitor = _Visitor()
    visitor.function(function)
    visitor.end()
    return visitor.found


def reads_of_expression(expression: ast.expr) -> Reads:
    """What an expression reads."""
    visitor = _Visitor()
    visitor.visit(expression)
    return visitor.found


class _Visitor:
    def __init__(self) -> None:
        self.found = Reads()
        self._scopes: list[Scope] = []
        self._in_annotation = False
        self._lists_locals = False
        # Functions inside, by name, and whether they are decorated.
        self._inner: list[tuple[str, bool, dict[Read, None]]] = []
        self._handed: set[str] = set()

    def end(self) -> None:
        """Says what follows from all of a function."""
        self.found.handed = [it for it in self.found.names if str(it) in self._handed]
        handed = {it.rpartition(".")[2] for it in self._handed}
        for name, is_decorated, hints in self._inner:
            if is_decorated or name in handed:
                self.found.inner_hints.update(hints)

    def function(self, node: Function) -> None:
        """Visits a function in a scope of its own."""
        self._annotations(node)
        scope = Scope()
        args = node.args
        every = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
        scope.bound.update(arg.arg for arg in every if arg is not None)
        body = [node.body] if isinstance(node, ast.Lambda) else node.body
        scope.bound.update(type_parameters(node))
        self._inside(scope, body)

    def _inside(self, scope: Scope, body: Iterable[ast.AST]) -> None:
        body = list(body)
        for statement in body:
            bind(statement, scope)
        self._bind_globals(scope)
        scope.bound -= scope.not_here | scope.outer
        self._scopes.append(scope)
        for statement in body:
            self.visit(statement)
        self._scopes.pop()
        self._read_imports(scope)

    def _read_imports(self, scope: Scope) -> None:
        """What a scope imports for who does not read it there: as an attribute of a class, by
        ``locals()``, in a query, or in a function around it, of which it is a variable."""
        lists_all = scope.is_class or self._lists_locals
        for name, imports in scope.imports.items():
            for found in imports:
                # Whole modules of Python's are hardly meant, and some would be refused.
                is_meant = found.name or not is_standard(found.module)
                is_queried = self.found.looks_up and any(
                    f"@{name}" in it for it in self.found.texts
                )
                if name in scope.outer or (is_meant and (lists_all or is_queried)):
                    self.found.passed[Read(name, (), found)] = None

    def _bind_globals(self, scope: Scope) -> None:
        self.found.writes |= scope.not_here & (scope.bound | scope.imports.keys())
        for name in sorted(scope.not_here & scope.imports.keys()):
            for found in scope.imports[name]:
                # Others may use it by that name.
                _note(self.found.names, Read(name, (), found))

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
        hints = self._hints(found)
        if not self._scopes:
            self.found.hints = hints
        elif hints and not isinstance(node, ast.Lambda):
            self._inner.append((node.name, bool(node.decorator_list), hints))

    def _hints(self, annotations: list[ast.expr]) -> dict[Read, None]:
        """The names in some annotations, and in the texts in these."""
        within = _Visitor()
        within._scopes = self._scopes
        for annotation in annotations:
            for hint in (annotation, *hints_in_texts(annotation)):
                within.visit(hint)
        return within.found.names

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
        elif isinstance(node, COMPREHENSIONS):
            self._comprehend(node)
        elif isinstance(node, ast.AnnAssign):
            self._annotate(node)
        elif isinstance(node, ast.Constant):
            self._text(node.value)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return
        elif isinstance(node, ast.AugAssign):
            self._augment(node.target)
            self.visit(node.value)
        elif isinstance(node, ast.Compare):
            self._compare(node)
        elif isinstance(node, ast.If | ast.IfExp | ast.While):
            self._test(node.test)
            for child in list(ast.iter_child_nodes(node))[1:]:
                self.visit(child)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self._test(node.operand)
        elif isinstance(node, ast.match_case):
            self.visit(node.pattern)
            if node.guard is not None:
                self._test(node.guard)
            for child in node.body:
                self.visit(child)
        else:
            if isinstance(node, ast.MatchClass):
                self._mention(node.kwd_attrs)
            self.found.asserts |= isinstance(node, ast.Assert)
            self.found.imports.update(imports_of(node))
            for child in ast.iter_child_nodes(node):
                self.visit(child)

    def _text(self, value: Any) -> None:
        if isinstance(value, str):
            self.found.texts.add(value)
            self._mention(meant_by(value))
            if len(value) <= _LONGEST_NAME:
                self._mention(value.split("."))

    def _mention(
        self, names: Iterable[str], looks_up: bool = True, looks_up_given: bool = True
    ) -> None:
        """Takes note of some names; what is said of those of ``LOOKING_UP`` is said, see ``Reads``,
        of how these are used."""
        self.found.mentioned.update(names)
        if not LOOKING_UP.isdisjoint(names):
            self.found.looks_up |= looks_up
            self.found.looks_up_given |= looks_up_given

    def _annotate(self, node: ast.AnnAssign) -> None:
        self.visit(node.target)
        if node.value is not None:
            self.visit(node.value)
        if self._scopes and self._scopes[-1].is_class:
            self.visit(node.annotation)

    def _define(self, node: Function) -> None:
        if not isinstance(node, ast.Lambda):
            self._decorate(node.decorator_list)
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        self.function(node)

    def _decorate(self, decorators: list[ast.expr]) -> None:
        for decorator in decorators:
            if isinstance(decorator, ast.Name | ast.Attribute):
                self._access(decorator, is_called=True)
            else:
                self.visit(decorator)

    def _define_class(self, node: ast.ClassDef) -> None:
        self._decorate(node.decorator_list)
        for child in (*node.bases, *node.keywords):
            self.visit(child)
        scope = Scope(is_class=True)
        scope.bound.update(type_parameters(node))
        self._inside(scope, node.body)

    def _comprehend(self, node: Any) -> None:
        first = node.generators[0]
        # That one is read in the scope around it.
        self.visit(first.iter)
        scope = Scope()
        for generator in node.generators:
            bind(generator.target, scope)
        self._scopes.append(scope)
        for generator in node.generators:
            if generator is not first:
                self.visit(generator.iter)
            self.visit(generator.target)
            for condition in generator.ifs:
                self._test(condition)
        elements = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
        for element in elements:
            self.visit(element)
        self._scopes.pop()

    def _use(self, node: ast.Call | ast.Subscript) -> None:
        """A call or an index, whose first argument may be a string."""
        if isinstance(node, ast.Call) and (name := attribute_name(node)):
            assert isinstance(node.func, ast.Name)
            if self._is_free(node.func.id):
                self.found.assumed[Read(node.func.id)] = None
                self.visit(ast.Attribute(node.args[0], name, ast.Load()))
                for argument in node.args[1:]:
                    self.visit(argument)
                return
        if isinstance(node, ast.Call) and not node.args and not node.keywords:
            self._call_bare(node.func)
            return
        if isinstance(node, ast.Call) and is_own_logger(node):
            # Nor do loggers count; the name of the module depends on how it is run.
            self._access(node.func)
            return
        if isinstance(node, ast.Call) and prints_to_file(node):
            self._mention(("format_exc",))
        used = node.func if isinstance(node, ast.Call) else node.value
        first: Any = node.slice if isinstance(node, ast.Subscript) else next(iter(node.args), None)
        if isinstance(used, ast.Name | ast.Attribute):
            is_stored = isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load)
            text, may_be_text = text_of(first), not isinstance(first, _NO_TEXTS)
            is_given, is_called = may_be_text and text is None, isinstance(node, ast.Call)
            self._access(used, text, False, is_stored, may_be_text, is_given, is_called)
        else:
            self.visit(used)
        for child in ast.iter_child_nodes(node):
            if child is not used:
                self.visit(child)

    def _call_bare(self, function: ast.expr) -> None:
        """A call without arguments, such as ``model.eval()``, which looks for nothing in a text."""
        self._lists_locals |= isinstance(function, ast.Name) and function.id in _LISTING
        if isinstance(function, ast.Attribute):
            self._access(function, looks_up=False, looks_up_given=False, is_called=True)
        elif isinstance(function, ast.Name):
            self._access(function, is_called=True)
        else:
            self.visit(function)

    def _augment(self, target: Any) -> None:
        """What ``+=`` and the like change, which they read, too."""
        if isinstance(target, ast.Subscript):
            self.visit(ast.Subscript(target.value, target.slice, ast.Load()))
        else:
            self._access(target, is_read=True)

    def _test(self, node: ast.expr) -> None:
        """What is asked whether it is true."""
        if isinstance(node, ast.Name | ast.Attribute):
            self._access(node, is_tested=True)
        elif isinstance(node, ast.BoolOp):
            for value in node.values:
                self._test(value)
        else:
            self.visit(node)

    def _compare(self, node: ast.Compare) -> None:
        """A comparison, which may look for a string in something."""
        if is_of_none(node):
            self._test(node.left)
            return
        self.visit(node.left)
        before: ast.expr = node.left
        for operator, other in zip(node.ops, node.comparators, strict=True):
            is_in = isinstance(operator, ast.In | ast.NotIn)
            if is_in and isinstance(other, ast.Name | ast.Attribute):
                self._access(other, constant=text_of(before))
            else:
                self.visit(other)
            before = other

    def _access(
        self,
        node: Any,
        constant: str | None = None,
        is_read: bool = False,
        is_stored: bool = False,
        looks_up: bool = True,
        looks_up_given: bool = True,
        is_called: bool = False,
        is_tested: bool = False,
    ) -> None:
        """A name, or attributes of something.

        Args:
            node: it.
            constant, is_stored, is_tested: see ``Read``.
            is_read: whether it is read though it is given a value.
            looks_up, looks_up_given: what is so if its last name is one of ``LOOKING_UP``; of what
                that is an attribute of, all is so.
            is_called: whether that is all that is done with it.
        """
        chain: list[str] = []
        top = node
        while isinstance(top, ast.Attribute):
            chain.append(top.attr)
            top = top.value
        names = chain if not isinstance(top, ast.Name) else [*chain, top.id]
        self._mention(names[:1], looks_up, looks_up_given)
        self._mention(names[1:])
        if not isinstance(top, ast.Name):
            self.visit(top)
            return
        if isinstance(top.ctx, ast.Load) or is_read:
            read = Read(top.id, tuple(reversed(chain)), None, constant, is_stored, is_tested)
            if not (is_called or self._in_annotation):
                self._handed.add(str(read))
            self._read(read)

    def _is_free(self, name: str) -> bool:
        """Whether no scope of the function binds a name."""
        return not any(name in scope.bound or name in scope.imports for scope in self._scopes)

    def _read(self, read: Read) -> None:
        name = read.root
        into = self.found.annotated if self._in_annotation else self.found.names
        for depth, scope in enumerate(reversed(self._scopes)):
            if scope.is_class and depth:
                # Functions in a class do not see its names.
                continue
            if name in scope.not_here or (scope.is_class and name in scope.bound):
                # A class that has not bound it yet reads the global of this name.
                break
            if name in scope.imports:
                for found in scope.imports[name]:
                    _note(into, dataclasses.replace(read, imported=found))
                return
            if name in scope.bound and not scope.is_class:
                return
        _note(into, read)


def _note(into: dict[Read, None], read: Read) -> None:
    """Adds what is read, in the place of where it was only tested."""
    if read.is_tested:
        if dataclasses.replace(read, is_tested=False) not in into:
            into[read] = None
        return
    tested = dataclasses.replace(read, is_tested=True)
    if tested in into:
        every = [read if it == tested else it for it in into]
        into.clear()
        into.update(dict.fromkeys(every))
    into[read] = None
