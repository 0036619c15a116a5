"""The syntax of functions that are running, found in the files that they came from.

A file may have been edited after it was imported. Its text then says nothing of what runs, so what
is found is compiled and compared with the function.
"""

from __future__ import annotations
import __future__

import ast
import collections
import functools
import inspect
import linecache
import textwrap
import threading
import tokenize
import types
from collections.abc import Callable, Iterator
from typing import Any

from yogadl.lazy import lazy
from yogadl.recipes._owners import space_of
from yogadl.recipes._reads import Reads, reads_of
from yogadl.recipes._syntax import (
    DOCUMENTED,
    FUNCTIONS,
    Function,
    form_of,
    functions_in,
    statements_in,
    statements_of,
    without_noise,
)

# Lines of files are below that, and what is moved in them is far below the other.
_MARK, _ASIDE = 1 << 24, 1 << 28
_LAMBDA = "<lambda>"
_FUTURES = functools.reduce(
    int.__or__, (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
)
# How a function is called, and what it gives.
_KINDS = functools.reduce(
    int.__or__,
    (
        inspect.CO_VARARGS,
        inspect.CO_VARKEYWORDS,
        inspect.CO_GENERATOR,
        inspect.CO_COROUTINE,
        inspect.CO_ASYNC_GENERATOR,
    ),
)
_MOST_FILES = 1000
# Pytest has put this into modules whose assertions it compiles in a way of its own.
_REWRITTEN = "@pytest_ar"

_files: dict[str, SourceFile] = {}
_lock = threading.Lock()


class SourceError(Exception):
    """The source of a function cannot be told; says why."""


class Source:
    """The source of a function.

    Args:
        node: its syntax.
        text: makes the text of that.
        lines: of its file, beginning with its first.

    Attributes:
        form: see ``form_of``.
        reads: what the function reads.
    """

    def __init__(
        self, node: Function, text: Callable[[], str], lines: Callable[[], list[str]]
    ) -> None:
        self.form = form_of(node)
        self.reads: Reads = reads_of(node)
        self._node = node
        self._text = text
        self._lines = lines

    @lazy
    def inner_docs(self) -> list[str | None]:
        """The docstrings of the functions and classes inside of it."""
        return [
            ast.get_docstring(inner)
            for inner in statements_in(self._node)
            if isinstance(inner, DOCUMENTED)
        ]

    @lazy
    def shown(self) -> str:
        """The function for people: without comments, in Python's own layout."""
        try:
            tree = ast.parse(textwrap.dedent(self._text()))
            found = next(node for node in ast.walk(tree) if isinstance(node, FUNCTIONS))
            return ast.unparse(without_noise(found))
        except (SyntaxError, StopIteration):
            # A lambda inside of an expression.
            return self._text().strip()

    @lazy
    def raw(self) -> str:
        """As it is written, with what follows it in its last line."""
        lines = self._lines()
        try:
            return "".join(lines[: _length_of(self._node, lines)] or inspect.getblock(lines))
        except (SyntaxError, IndexError, tokenize.TokenError):
            # It begins inside of a text of several lines, say.
            return self._text()


def _length_of(node: Function, lines: list[str]) -> int:
    """How many lines ``inspect.getblock`` has of a function whose first line is the first of some;
    0 if only that can tell. It takes long, and has comments that follow in the same block."""
    if isinstance(node, ast.Lambda) or node.decorator_list:
        return 0
    length = 1 + (node.end_lineno or node.lineno) - node.lineno
    after = next((it for line in lines[length:] if (it := line.strip())), "")
    is_told = after[:1] != "#" and not lines[length - 1].rstrip().endswith("\\")
    return length if is_told else 0


def source_of(function: types.FunctionType) -> Source:
    """The source of a function.

    Raises:
        SourceError: there is none, or it is not what runs.
    """
    code = function.__code__
    file = _file_of(code.co_filename, function.__globals__)
    return file.find(code, _REWRITTEN in function.__globals__)


def class_text(kind: type) -> str:
    """All that a module has as the source of a class; empty if it cannot be read."""
    space = space_of(kind.__module__)
    file = space.get("__file__")
    try:
        return _file_of(file, space).class_text(kind.__qualname__) if file else ""
    except (SourceError, SyntaxError, ValueError):
        return ""


def parsed(name: str, text: str) -> ast.Module | None:
    """The syntax of a file, which is not to be changed, if functions of it were looked for while it
    had a text."""
    with _lock:
        found = _files.get(name)
    return found.tree if found is not None and found.text == text else None


def _file_of(name: str, namespace: dict[str, Any]) -> SourceFile:
    linecache.checkcache(name)
    lines = linecache.getlines(name, namespace)
    text = "".join(lines)
    if not text:
        raise SourceError(f"its source, {name}, cannot be read")
    with _lock:
        found = _files.get(name)
        if found is None or found.text != text:
            if len(_files) >= _MOST_FILES:
                _files.clear()
            found = _files[name] = SourceFile(name, text, lines)
        return found


class SourceFile:
    """The text of a module. Safe for threads.

    Attributes:
        text: all of it.
        tree: its syntax, when that was needed, if it has any.
    """

    def __init__(self, name: str, text: str, lines: list[str]) -> None:
        self.text = text
        self._name = name
        self._lines = lines
        self._found: dict[int, tuple[types.CodeType, Source]] = {}
        self._split: list[str] | None = None
        self._nodes: dict[tuple[int, str], list[Function]] | None = None
        self._codes: dict[tuple[int, str], list[types.CodeType]] = {}
        self._apart: dict[int, dict[int, list[types.CodeType | None]]] = {}
        self.tree: ast.Module | None = None
        self._classes: dict[str, str] | None = None
        self._guard = threading.Lock()

    def find(self, code: types.CodeType, is_rewritten: bool) -> Source:
        """The source of a function's code, which may be of a module that pytest has rewritten."""
        known = self._found.get(id(code))
        if known is not None and known[0] is code:
            return known[1]
        with self._guard:
            if self._nodes is None:
                self._nodes = self._parse(code.co_flags & _FUTURES)
            source = self._find(code, self._nodes, is_rewritten)
            self._found[id(code)] = code, source
        return source

    def class_text(self, name: str) -> str:
        """The lines of the classes of a name, as it is in the module."""
        if self._classes is None:
            self._classes = {}
            for inner, node in _classes_in(self.tree or ast.parse(self.text), ""):
                lines = self._lines[_begin_of(node) - 1 : node.end_lineno]
                self._classes[inner] = self._classes.get(inner, "") + "".join(lines)
        return self._classes.get(name, "")

    def _parse(self, flags: int) -> dict[tuple[int, str], list[Function]]:
        nodes: dict[tuple[int, str], list[Function]] = {}
        try:
            tree = ast.parse(self.text)
            # Notebooks may await outside of functions, and have futures of earlier cells.
            flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            compiled = self._compile(tree, flags)
        except (SyntaxError, ValueError):
            # Some lines of a file that is more than Python, such as a page of documentation.
            return nodes
        self.tree = tree
        for node in functions_in(tree):
            nodes.setdefault(_place(node), []).append(node)
        for code in _codes_in(compiled):
            self._codes.setdefault((code.co_firstlineno, code.co_name), []).append(code)
        return nodes

    def _compile(self, tree: ast.Module, flags: int) -> types.CodeType:
        compiled: types.CodeType
        try:
            # In a third of the time that the text takes.
            compiled = compile(tree, self._name, "exec", flags, dont_inherit=True)
        except RecursionError:
            # Of a tree, Python has less room for what is in each other.
            compiled = compile(self.text, self._name, "exec", flags, dont_inherit=True)
        return compiled

    def _find(
        self,
        code: types.CodeType,
        nodes: dict[tuple[int, str], list[Function]],
        is_rewritten: bool,
    ) -> Source:

        def lines() -> list[str]:
            return self._lines[code.co_firstlineno - 1 :]

        if not nodes:
            node, text = self._block(code)
            return Source(node, lambda: text, lines)
        place = code.co_firstlineno, code.co_name
        candidates = nodes.get(place, [])
        if len(candidates) > 1:
            candidates = self._chosen(code, candidates)
        is_same = any(_is_same(code, other) for other in self._codes.get(place, ()))
        if not candidates or not (is_same or (is_rewritten and _asserts(candidates[0]))):
            raise SourceError(
                f"{self._name} is not what is running: it was changed after it was imported, so "
                "begin a new process or reload the module"
            )
        return Source(candidates[0], functools.partial(self._segment, candidates[0]), lines)

    def _segment(self, node: Function) -> str:
        """The text of a function, with what is before it in its first line as spaces."""
        if self._split is None:
            # For each function anew, as ast.get_source_segment does, it would take long.
            self._split = self.text.split("\n")
        lines = [line.encode() for line in self._split[node.lineno - 1 : node.end_lineno]]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = b" " * node.col_offset + lines[0][node.col_offset :]
        return b"\n".join(lines).decode()

    def _chosen(self, code: types.CodeType, candidates: list[Function]) -> list[Function]:
        """Those of several lambdas that begin on one line that a code is of."""
        flags = (code.co_flags & _FUTURES) | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        known = self._apart.get(flags)
        if known is None:
            known = self._apart[flags] = self._told_apart(flags)
        return [
            candidate
            for candidate, other in zip(candidates, known[code.co_firstlineno], strict=True)
            if other is not None and _is_same(code, other)
        ]

    def _told_apart(self, flags: int) -> dict[int, list[types.CodeType | None]]:
        """The codes of all lambdas that share a line with others, by their lines, in the order in
        which they are found."""
        functions = list(functions_in(self.tree or ast.parse(self.text)))
        counts = collections.Counter(map(_place, functions))
        shared = {
            id(node): number
            for number, node in enumerate(functions)
            if isinstance(node, ast.Lambda) and counts[_place(node)] > 1
        }
        depths = dict.fromkeys(shared.values(), 0)
        for number in shared.values():
            _, *inside = functions_in(functions[number])
            for node in inside:
                if id(node) in shared:
                    depths[shared[id(node)]] += 1
        codes = dict[int, types.CodeType | None]()
        for level in set(depths.values()):
            numbers = [number for number, depth in depths.items() if depth == level]
            codes.update(self._compiled_apart(numbers, flags))
        found: dict[int, list[types.CodeType | None]] = {}
        for number, code in sorted(codes.items()):
            found.setdefault(functions[number].lineno, []).append(code)
        return found

    def _compiled_apart(self, numbers: list[int], flags: int) -> dict[int, types.CodeType | None]:
        """The codes of some lambdas, none of which is inside of another, by which of the file's
        functions they are."""
        # The whole file has a say in them: a call of something that is imported is compiled in a
        # way of its own.
        tree = ast.parse(self.text)
        functions = list(functions_in(tree))
        apart = 1 + max(
            (it.end_lineno or 0) - it.lineno for it in map(functions.__getitem__, numbers)
        )
        for place, number in enumerate(numbers):
            _move(functions[number], _MARK + place * apart)
            # What is compiled around it, and may begin on the same line.
            args = functions[number].args
            for default in (*args.defaults, *args.kw_defaults):
                if default is not None:
                    _move(default, _ASIDE)
        marked = dict[int, types.CodeType]()
        for code in _codes_in(compile(tree, self._name, "exec", flags, dont_inherit=True)):
            if code.co_name == _LAMBDA:
                # Those inside come later, and may be on the same line.
                marked.setdefault(code.co_firstlineno, code)
        return {number: marked.get(_MARK + place * apart) for place, number in enumerate(numbers)}

    def _block(self, code: types.CodeType) -> tuple[Function, str]:
        """The function that begins in a line of a file that is not all Python."""
        try:
            block = inspect.getblock(self._lines[code.co_firstlineno - 1 :])
            text = textwrap.dedent("".join(block))
            found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, FUNCTIONS)]
        except (SyntaxError, IndexError, StopIteration) as error:
            raise SourceError(f"its source in {self._name} is not Python: {error}") from error
        named = [node for node in found if getattr(node, "name", _LAMBDA) == code.co_name]
        if len(named) != 1 and (not named or code.co_name == _LAMBDA):
            raise SourceError(f"its source in {self._name} cannot be told from that of others")
        return named[0], text


def _place(node: Function) -> tuple[int, str]:
    """The first line and the name that its code has."""
    return _begin_of(node), _LAMBDA if isinstance(node, ast.Lambda) else node.name


def _begin_of(node: ast.stmt | ast.Lambda) -> int:
    """The first line of a piece of code, with its decorators."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(it.lineno for it in decorators)])


def _move(node: ast.expr | ast.stmt, line: int) -> None:
    """Has a piece of code begin in another line, and all that is in it move along: where the line
    changes, there may be one more instruction."""
    by = line - node.lineno
    for inner in ast.walk(node):
        if isinstance(inner, ast.expr | ast.stmt | ast.arg | ast.keyword):
            inner.lineno += by
            if inner.end_lineno is not None:
                inner.end_lineno += by


def _classes_in(node: ast.AST, within: str) -> Iterator[tuple[str, ast.ClassDef]]:
    """The classes in a piece of code, by their qualified names."""
    for child in statements_of(node):
        inner = within
        if isinstance(child, ast.ClassDef):
            yield f"{within}{child.name}", child
            inner = f"{within}{child.name}."
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = f"{within}{child.name}.<locals>."
        yield from _classes_in(child, inner)


def _codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield constant
            yield from _codes_in(constant)


def _is_same(one: types.CodeType, other: types.CodeType) -> bool:
    """Whether two codes do the same, wherever they are."""
    return (
        one.co_code == other.co_code
        and one.co_flags & _KINDS == other.co_flags & _KINDS
        and getattr(one, "co_exceptiontable", b"") == getattr(other, "co_exceptiontable", b"")
        and one.co_names == other.co_names
        and one.co_varnames == other.co_varnames
        and one.co_freevars == other.co_freevars
        and one.co_cellvars == other.co_cellvars
        and one.co_argcount == other.co_argcount
        and one.co_posonlyargcount == other.co_posonlyargcount
        and one.co_kwonlyargcount == other.co_kwonlyargcount
        and len(one.co_consts) == len(other.co_consts)
        and all(map(_is_same_constant, one.co_consts, other.co_consts))
    )


def _is_same_constant(one: Any, other: Any) -> bool:
    if isinstance(one, types.CodeType) and isinstance(other, types.CodeType):
        return _is_same(one, other)
    if isinstance(one, frozenset) and isinstance(other, frozenset):
        # 1, 1.0 and True are equal, and not the same.
        return sorted(map(repr, one)) == sorted(map(repr, other))
    return type(one) is type(other) and repr(one) == repr(other)


def _asserts(node: Function) -> bool:
    return any(isinstance(inner, ast.Assert) for inner in ast.walk(node))
