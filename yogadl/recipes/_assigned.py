"""Which attributes a text of Python gives to what is not its own, and what it imports."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from yogadl.recipes._members import Member, Roots
from yogadl.recipes._scopes import Import, imports_of

Stored = Mapping[str, bool]
"""Names, and whether code, or anything that has some, may be stored under them."""

ALL = None
"""Stands for all names."""

_NAMESPACES = re.compile(r"\b(?:vars|__dict__)\b")

TABLES = re.compile(rf"{_NAMESPACES.pattern}|\bsys\s*\.\s*modules\b")
"""What the namespaces of objects, and the table of modules, are asked for by."""

_SETATTR, _VARS, _DICT, _SELF = "setattr", "vars", "__dict__", "self"
# What is told by more than its kind.
_TELLING = {
    *(ast.Attribute, ast.Call, ast.Name, ast.alias, ast.Constant, ast.arg, ast.ClassDef),
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.Import, ast.ImportFrom),
    *(ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping, ast.MatchClass),
}
_ASSIGNMENTS = ast.Assign | ast.AnnAssign | ast.AugAssign
_DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
# What runs texts, by another name than its own.
_RUNNING = frozenset(("exec", "eval", "compile"))
_IMPORTING = frozenset(("import_module", "__import__", "find_spec"))
_BUILTINS, _SYS, _WRAPS = "builtins", "sys", "wraps"
# What is imported by any name may fail, or be taken away again, with nothing left; and by ``sys``,
# it may be from where Python does not look any more.
_MEANING = frozenset((_WRAPS, _BUILTINS, _SYS)) | _IMPORTING
# What of that says nothing of where Python looks.
_OF_SYS = frozenset(
    (
        *("argv", "byteorder", "exc_info", "executable", "exit", "flags", "getsizeof", "maxsize"),
        *("platform", "stderr", "stdin", "stdout", "version", "version_info"),
    )
)
_MODULES = "modules"
# What reads all that an object has, of its namespace: methods, and functions.
_READING = frozenset(("copy", "get", "items", "keys", "values"))
_COPYING = frozenset(("dict", "len", "list", "print", "repr", "set", "sorted", "str", "tuple"))


@dataclass
class Assigned:
    """What a text says.

    Attributes:
        names: of attributes that it gives to what is not its own.
        members: other such names, and of which members of enumerations these consist.
        imports: what it imports.
        trusts_self: whether only its methods have something of the name ``self``.
    """

    names: dict[str, bool] = field(default_factory=dict)
    members: list[tuple[str, frozenset[Member]]] = field(default_factory=list)
    imports: set[Import] = field(default_factory=set)
    trusts_self: bool = True


class _AnyNameError(Exception):
    """A text may give any name to anything."""


def assigned_in(tree: ast.Module, has_tables: bool) -> Assigned | None:
    """What a text says, or ``ALL`` if it may give anything to anything.

    Args:
        tree: of a file of Python.
        has_tables: whether ``TABLES`` finds something in it.
    """
    for is_self_own in (True, False):
        walk = _Walk(has_tables, is_self_own)
        try:
            walk.run(tree)
        except _AnyNameError:
            return ALL
        if walk.found.trusts_self == is_self_own:
            break
    return walk.found


class _Walk:
    """A walk through a text.

    Args:
        has_tables: see ``assigned_in``.
        is_self_own: whether ``self`` is the text's own, and no library.
    """

    def __init__(self, has_tables: bool, is_self_own: bool) -> None:
        self.found = Assigned()
        self._has_tables = has_tables
        self._own = _SELF if is_self_own else ""
        # By where they are in memory: what is given plain values only, the first arguments of
        # methods, and what decorates or is called in a way that is told.
        self._plain: set[int] = set()
        self._of_methods: set[int] = set()
        self._told: set[int] = set()
        self._bound: set[str] = set()
        self._roots = Roots()
        self._given: dict[int, ast.expr] = {}
        self._unsure: list[tuple[str, ast.expr]] = []
        self._copies = False

    def run(self, tree: ast.Module) -> None:
        """Looks at all of it.

        Raises:
            _AnyNameError: it may give anything to anything.
        """
        pending: list[ast.AST] = [tree]
        owners: dict[int, ast.expr] = {}
        while pending:
            node = pending.pop()
            if self._has_tables:
                if self._is_of_own(node) or _is_docstring(node):
                    continue
                if _is_namespace(node):
                    # Somebody calls it by another name, or may put something in.
                    raise _AnyNameError
                # Of what is only read, the object that it is of goes on.
                read = _read(node)
                owners = {id(it): owner for it in read if (owner := _owner(it)) is not None}
                tables = [it for it in read if isinstance(it, ast.Attribute) and _is_table(it)]
                self._told.update(map(id, tables))
                self._copies |= bool(owners or tables) and isinstance(node, ast.Call)
            if isinstance(node, _ASSIGNMENTS) and _is_plain(node.value):
                # What is added to something makes no code of what was none.
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                self._plain.update(map(id, targets))
            elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                self._given.update((id(target), node.value) for target in targets)
            elif type(node) in _TELLING:
                inside = self._look_at(node)
                if inside is not None:
                    pending += inside
                    continue
            for value in vars(node).values():
                if isinstance(value, list):
                    pending += [owners.get(id(it), it) for it in value if isinstance(it, ast.AST)]
                elif isinstance(value, ast.AST):
                    pending.append(owners.get(id(value), value))
        if self._copies and not self._bound.isdisjoint(_COPYING | {"*"}):
            # What is called so may do something else.
            raise _AnyNameError
        for name, value in self._unsure:
            members = self._roots.members_in(value)
            if members:
                self.found.members.append((name, members))
            else:
                self._store(name, members is None)
        self.found.names.pop("", None)

    def _look_at(self, node: ast.AST) -> Iterable[ast.AST] | None:
        """Takes note of one of ``_TELLING``; what is to be looked at of it, unless that is all."""
        if _is_setattr(node):
            raise _AnyNameError
        if id(node) not in self._told:
            if _is_by_another_name(node, _MEANING):
                raise _AnyNameError
        if isinstance(node, ast.Attribute):
            if _is_named(node.value, _BUILTINS) and isinstance(node.value, ast.Name):
                if node.attr in _RUNNING:
                    raise _AnyNameError
                self._told.add(id(node.value))
            # A module that is taken out of the table has no text, and one that is put there may
            # be imported by any name.
            is_read = _is_table(node) and id(node) in self._told
            if _is_named(node.value, _SYS) and (node.attr in _OF_SYS or is_read):
                self._told.add(id(node.value))
            if isinstance(node.ctx, ast.Store) and not self._is_own(node.value):
                value = self._given.get(id(node))
                self._give(node.attr, id(node) not in self._plain, value)
        elif isinstance(node, ast.Call):
            return self._look_at_call(node)
        elif isinstance(node, ast.Name):
            if node.id in _RUNNING:
                raise _AnyNameError
            if not isinstance(node.ctx, ast.Load):
                self._bind(node.id)
        elif isinstance(node, ast.arg):
            self._roots.add_other(node.arg)
            if id(node) not in self._of_methods:
                self._bind(node.arg)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            self._import(node)
        elif isinstance(node, _DEFINITIONS):
            self._define(node)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
            self._bind(node.name or "")
        elif isinstance(node, ast.MatchMapping):
            self._bind(node.rest or "")
        return None

    def _look_at_call(self, node: ast.Call) -> Iterable[ast.AST] | None:
        if _is_setattr(node.func):
            name = self._name_set(node)
            if name is None:
                raise _AnyNameError
            self._give(name, True, node.args[2])
            # Anything may have a method of this name.
            owners = [node.func.value] if isinstance(node.func, ast.Attribute) else []
            more = [it for it in owners if not _is_named(it, _BUILTINS)]
            return [*node.args, *node.keywords, *more]
        called = getattr(node.func, "attr", getattr(node.func, "id", None))
        if called in _IMPORTING:
            name = _name_imported(node)
            if name is not None:
                level = len(name) - len(name.lstrip("."))
                self.found.imports.add(Import(name[level:], level))
                self._told.add(id(node.func))
        return None

    def _give(self, name: str, is_code: bool, value: ast.expr | None) -> None:
        """Says that something is given an attribute, maybe of a value that is known."""
        if name[:2] == "__":
            self._store(name, True)
        elif value is None or not is_code:
            self._store(name, is_code)
        else:
            self._unsure.append((name, value))

    def _store(self, name: str, is_code: bool) -> None:
        if name == "__class__":
            # It has all that its new class has.
            raise _AnyNameError
        self.found.names[name] = is_code or self.found.names.get(name, False)

    def _bind(self, name: str) -> None:
        self._roots.add_other(name)
        self._bind_any(name)

    def _bind_any(self, name: str) -> None:
        self._bound.add(name)
        if name == _SELF:
            self.found.trusts_self = False

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            if alias.name in _RUNNING and getattr(node, "module", None) == _BUILTINS:
                raise _AnyNameError
            self._bind_any(alias.asname or alias.name.partition(".")[0])
            # By another name, modules may be taken away, or put there.
            is_of_sys = getattr(node, "module", None) == _SYS
            if is_of_sys and alias.name not in _OF_SYS:
                raise _AnyNameError
        self._roots.add(node)
        self.found.imports.update(imports_of(node))

    def _define(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self._bind(node.name)
        for decorator in node.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            if _is_named(called, _WRAPS):
                self._told.add(id(called))
        for method in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
                is_static = any(_is_named(it, "staticmethod") for it in method.decorator_list)
                first = [*method.args.posonlyargs, *method.args.args][:1]
                self._of_methods.update(() if is_static else map(id, first))

    def _is_own(self, node: ast.AST) -> bool:
        """Whether this is what a method has as ``self``, which is no library."""
        return isinstance(node, ast.Name) and node.id == self._own

    def _is_of_own(self, node: ast.AST) -> bool:
        """Whether this is the namespace of ``self``, or all that is there is given to that."""
        owner = _owner(node) if isinstance(node, ast.Attribute | ast.Call) else None
        return owner is not None and self._is_own(owner)

    def _name_set(self, call: ast.Call) -> str | None:
        """The name that a call of ``setattr`` sets; empty for one of ``self``."""
        given = call.args
        if len(given) == 3 and not any(isinstance(each, ast.Starred) for each in given):
            return "" if self._is_own(given[0]) else _text_of(given[1])
        return None


def _name_imported(call: ast.Call) -> str | None:
    """The name of the module that a call imports, with the dots of one in the text's own package;
    ``None`` if that is not plain."""
    if not call.args or len(call.args) > 2 or call.keywords:
        return None
    is_own = all(isinstance(it, ast.Name) and it.id == "__package__" for it in call.args[1:])
    return _text_of(call.args[0]) if is_own else None


def _text_of(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return None


def _is_named(node: ast.AST, name: str) -> bool:
    return name in (getattr(node, "id", None), getattr(node, "attr", None))


def _is_by_another_name(node: ast.AST, names: frozenset[str]) -> bool:
    """Whether this means what has one of some names, by that or by a text, such as
    ``functools.wraps``, which gives attributes to whatever it decorates."""
    if isinstance(node, ast.alias):
        return node.name in names and node.asname not in (None, node.name)
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value in names
    if isinstance(node, ast.MatchClass):
        return not names.isdisjoint(node.kwd_attrs)
    return getattr(node, "id", getattr(node, "attr", None)) in names


def _is_plain(value: ast.expr | None) -> bool:
    """Whether this is surely a number, a text, ``None`` or the like."""
    if isinstance(value, ast.UnaryOp):
        # What Python's ``not`` says of anything, or of a number.
        return isinstance(value.op, ast.Not) or isinstance(value.operand, ast.Constant)
    return isinstance(value, ast.Constant | ast.JoinedStr)


def _read(node: ast.AST) -> list[ast.expr | None]:
    """The expressions right within a node whose values are only read, whatever they are."""
    if isinstance(node, ast.Subscript):
        return [node.value] if isinstance(node.ctx, ast.Load) else []
    if isinstance(node, ast.Attribute):
        is_read = isinstance(node.ctx, ast.Load) and node.attr in _READING
        return [node.value] if is_read else []
    if isinstance(node, ast.Call):
        is_copied = isinstance(node.func, ast.Name) and node.func.id in _COPYING
        return list(node.args) if is_copied else []
    if isinstance(node, ast.keyword):
        return [node.value] if node.arg is None else []
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return [value for key, value in pairs if key is None]
    if isinstance(node, ast.Compare):
        # Who is asked whether it is equal to something gets that, if it is no namespace, too.
        compared = zip(node.ops, node.comparators, strict=True)
        if all(map(_owner, (node.left, *node.comparators))):
            return [node.left, *node.comparators]
        return [value for op, value in compared if isinstance(op, ast.In | ast.NotIn)]
    return [node.iter] if isinstance(node, ast.For | ast.comprehension) else []


def _owner(node: ast.expr | None) -> ast.expr | None:
    """Whose namespace this is: ``x`` of ``vars(x)`` and ``x.__dict__``."""
    if isinstance(node, ast.Attribute) and node.attr == _DICT:
        return node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == _VARS:
        is_plain = len(node.args) == 1 and not node.keywords
        return node.args[0] if is_plain and not isinstance(node.args[0], ast.Starred) else None
    return None


def _is_table(node: ast.Attribute) -> bool:
    """Whether this is what has all modules."""
    return node.attr == _MODULES and _is_named(node.value, _SYS)


def _is_docstring(node: ast.AST) -> bool:
    """Whether this is a text that nobody gets as a value."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_namespace(node: ast.AST) -> bool:
    """Whether this may be the namespace of something, or what gives one."""
    names: Iterable[str] = ()
    if isinstance(node, ast.Name):
        names = (node.id,)
    elif isinstance(node, ast.Attribute):
        names = (node.attr,)
    elif isinstance(node, ast.alias):
        names = (node.name,)
    elif isinstance(node, ast.MatchClass):
        names = node.kwd_attrs
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        names = (node.value,)
    return any(map(_NAMESPACES.search, names))


def _is_setattr(node: ast.AST) -> bool:
    """Whether this means ``setattr``, by its name or by a text."""
    if isinstance(node, ast.Name):
        return node.id == _SETATTR
    if isinstance(node, ast.Attribute):
        return node.attr == _SETATTR
    if isinstance(node, ast.alias):
        return node.name.endswith(_SETATTR)
    return isinstance(node, ast.Constant) and node.value == _SETATTR
