"""Python's syntax in a normal form, without what does not decide what code does.

Comments, layout, positions, docstrings and other bare constants, ``pass``, type comments, and
annotations of variables of functions are left out. The form of a piece of code is the same on every
Python that is supported, and depends on no seed.
"""

from __future__ import annotations

import ast
import collections
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
DOCUMENTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)

_STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)
_WITHOUT_FUNCTIONS = frozenset((ast.Constant, ast.Name, ast.Load, ast.Store, ast.Del))
_LEFT_OUT = frozenset(("ctx", "kind", "type_comment", "type_ignores"))


def form_of(function: Function) -> str:
    """The normal form of a function, without its decorators and default values, which are values
    when the function is there."""
    out: list[str] = []
    args = function.args
    bare = ast.arguments(
        posonlyargs=args.posonlyargs,
        args=args.args,
        vararg=args.vararg,
        kwonlyargs=args.kwonlyargs,
        kw_defaults=[],
        kwarg=args.kwarg,
        defaults=[],
    )
    out.append(type(function).__name__)
    _write(bare, out, True)
    if isinstance(function, ast.Lambda):
        _write(function.body, out, True)
        return "".join(out)
    if function.returns is not None:
        out.append("->")
        _write(function.returns, out, True)
    _write_list(_statements(function.body), out, True)
    return "".join(out)


def functions_in(tree: ast.AST) -> Iterator[Function]:
    """All functions in a piece of code, always in the same order; in a fraction of the time that
    ``ast.walk`` takes."""
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, FUNCTIONS):
            yield node
        for value in vars(node).values():
            if type(value) is list:
                stack += [it for it in value if isinstance(it, ast.AST)]
            elif isinstance(value, ast.AST) and type(value) not in _WITHOUT_FUNCTIONS:
                stack.append(value)


def statements_in(tree: ast.AST) -> Iterator[ast.AST]:
    """All statements within a piece of code, in the order in which ``ast.walk`` has them, whatever
    their expressions have; and what holds some, such as the cases of a ``match``."""
    pending = collections.deque([tree])
    while pending:
        found = list(statements_of(pending.popleft()))
        pending += found
        yield from found


def statements_of(node: ast.AST) -> Iterator[ast.AST]:
    """The same, but not what is deeper within."""
    for value in vars(node).values():
        if type(value) is list:
            yield from (it for it in value if isinstance(it, _STATEMENTS))


def expression_form(expression: ast.expr) -> str:
    """The normal form of an expression."""
    out: list[str] = []
    _write(expression, out, False)
    return "".join(out)


def hints_in_texts(annotation: ast.expr) -> Iterator[ast.expr]:
    """The types that are written as text in an annotation, as in ``Optional["Item"]``."""
    pending: list[ast.AST] = [annotation]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                inner = ast.parse(node.value, mode="eval").body
            except (SyntaxError, ValueError):
                continue
            yield inner
            pending.append(inner)
            continue
        if isinstance(node, ast.Subscript):
            name = ast.unparse(node.value).rpartition(".")[2]
            if name == "Literal":
                continue
            if name == "Annotated" and isinstance(node.slice, ast.Tuple):
                # The others are no types.
                pending.append(node.slice.elts[0])
                continue
        pending += reversed(list(ast.iter_child_nodes(node)))


def without_noise(function: Function) -> Function:
    """The function as people read it: without docstrings. Changes and returns it."""
    for node in ast.walk(function):
        if isinstance(node, DOCUMENTED):
            node.body = _statements(node.body) or [ast.Pass()]
    if not isinstance(function, ast.Lambda):
        function.decorator_list = []
    return function


def _statements(body: list[ast.stmt]) -> list[ast.stmt]:
    """Those that do something."""
    return [
        node
        for node in body
        if not isinstance(node, ast.Pass)
        and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    ]


def _write(node: Any, out: list[str], in_function: bool) -> None:
    if isinstance(node, ast.Constant):
        out.append(_constant(node.value))
        return
    if isinstance(node, ast.JoinedStr):
        _write_joined(node, out, in_function)
        return
    if in_function and isinstance(node, ast.AnnAssign):
        _write_annotated(node, out)
        return
    if isinstance(node, FUNCTIONS):
        in_function = True
    elif isinstance(node, ast.ClassDef):
        in_function = False
    out.append(f"({type(node).__name__}")
    for name in node._fields:
        if name in _LEFT_OUT:
            continue
        value = getattr(node, name, None)
        if value is None or value == []:
            # Later versions have fields that earlier ones lack.
            continue
        out.append(f" {name}=")
        if isinstance(value, ast.AST):
            _write(value, out, in_function)
        elif isinstance(value, list):
            is_body = isinstance(value[0], ast.stmt)
            _write_list(_statements(value) if is_body else value, out, in_function)
        else:
            out.append(_constant(value))
    out.append(")")


def _write_list(values: Iterable[Any], out: list[str], in_function: bool) -> None:
    out.append("[")
    for value in values:
        if isinstance(value, ast.AST):
            _write(value, out, in_function)
        elif value is not None:
            # In a dict and in defaults, a key or value that is not there is no None.
            out.append(_constant(value))
        out.append(",")
    out.append("]")


def _write_annotated(node: ast.AnnAssign, out: list[str]) -> None:
    """Python does not look at the annotations of variables of functions."""
    if node.value is None:
        out.append("(Declared " if binds(node) else "(Mentioned ")
        _write(node.target, out, True)
    else:
        out.append("(Assign targets=[")
        _write(node.target, out, True)
        out.append(",] value=")
        _write(node.value, out, True)
    out.append(")")


def binds(node: ast.AnnAssign) -> bool:
    """Whether what is annotated is a variable of the function: of ``(X): int``, which is no simple
    name and is given no value, it is not."""
    is_bare = isinstance(node.target, ast.Name) and not node.simple
    return node.value is not None or not is_bare


def _write_joined(node: ast.JoinedStr, out: list[str], in_function: bool) -> None:
    """An f-string, whose constant pieces are cut otherwise by other versions."""
    pieces: list[str | ast.expr] = []
    for value in node.values:
        if isinstance(value, ast.Constant):
            if pieces and isinstance(pieces[-1], str):
                pieces[-1] += str(value.value)
            elif value.value:
                pieces.append(str(value.value))
        else:
            pieces.append(value)
    if not pieces or (len(pieces) == 1 and isinstance(pieces[0], str)):
        out.append(_constant("".join(map(str, pieces))))
        return
    out.append("(JoinedStr ")
    for piece in pieces:
        if isinstance(piece, str):
            out.append(_constant(piece))
        else:
            _write(piece, out, in_function)
        out.append(",")
    out.append(")")


def _constant(value: Any) -> str:
    """A constant with its type: 1, 1.0 and True are equal, and not the same."""
    if isinstance(value, int) and not isinstance(value, bool):
        # Python writes no decimal numbers of more than some thousand digits.
        return f"<int {value:#x}>"
    # What repr() escapes depends on the version's Unicode.
    return f"<{type(value).__name__} {value!a}>"


def is_of_none(node: ast.Compare) -> bool:
    """Whether something is only asked whether it is ``None``."""
    (operator, *others), other = node.ops, node.comparators[0]
    is_none = isinstance(other, ast.Constant) and other.value is None
    return isinstance(operator, ast.Is | ast.IsNot) and is_none and not others
