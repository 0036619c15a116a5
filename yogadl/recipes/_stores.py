"""Which attributes the user's code may give to what is not its own, as far as its text tells.

Libraries have a hundred thousand values, and hardly anybody puts something among them. So it is
asked first under which names anybody could have: every name of an attribute that is assigned to;
and under which of them code could be, as ``options.deterministic = False`` puts none there.
What is too clever for that, such as ``setattr`` of a name that is put together, makes all names
possible, and so does code without a text.
"""

from __future__ import annotations

import ast
import os
import re
import threading
import time
import types
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from yogadl.recipes._registering import WORD, Chain, registries_in
from yogadl.recipes._registries import is_registry_of_users
from yogadl.recipes._sources import parsed

ALL = None
"""Stands for all names."""

_BEGUN = time.time()
_MOST_BYTES = 4 << 20
# What is too clever to be found out; a word of them in a comment is enough.
_ANY = re.compile(
    "|".join(
        (
            r"\b(?:__setattr__|__self__|__globals__|__builtins__|f_globals|update_wrapper)\b",
            r"\b(?:mock|mocker|monkeypatch|wrapt|copyreg|runpy)\b",
            r"\b(?:exec_module|load_module|spec_from_file_location|SourceFileLoader)\b",
            # A module that is gone has no text.
            r"\bdel\s+sys\s*\.\s*modules\b",
            r"\bsys\s*\.\s*modules\s*\.\s*(?:pop|clear)\b",
            r"\bsys\s*\.\s*modules\s*\[(?:[^\n]{0,500}\]\s*=(?!=)|[^\n]{501})",
            r"\bexec\s*\(|(?<![\w.])(?:eval|compile)\s*\(",
        )
    )
)
_FROM_SYS, _MODULES = re.compile(r"\bfrom\s+sys\s+import\b"), re.compile(r"\bmodules\b")
_WORD = re.compile(r"\w+")
_SETATTR, _VARS, _DICT = "setattr", "vars", "__dict__"
_TELLING = {ast.Attribute, ast.Call, ast.Name, ast.alias, ast.Constant}
_NAMESPACES = re.compile(r"\b(?:vars|__dict__)\b")
# What reads all that an object has, of its namespace: methods, and functions.
_READING = frozenset(("copy", "get", "items", "keys", "values"))
_COPYING = frozenset(("dict", "len", "list", "print", "repr", "set", "sorted", "str", "tuple"))

Stored = Mapping[str, bool]
"""Names, and whether code, or anything that has some, may be stored under them."""


@dataclass(frozen=True)
class Told:
    """What a text tells.

    Attributes:
        names: of attributes that it may give to anything.
        registries: what it may register something with, if that is a library's.
    """

    names: Stored
    registries: frozenset[Chain] = frozenset()


_known: dict[str, tuple[tuple[int, int], Told | None]] = {}
_lock = threading.Lock()


def names_stored(modules: Iterable[types.ModuleType]) -> Stored | None:
    """The names of attributes that the code of some modules may have given to anything, or ``ALL``.

    Args:
        modules: all of the user's.
    """
    found: dict[str, bool] = {}
    left = _MOST_BYTES
    for module in modules:
        file = vars(module).get("__file__")
        known = _told_in(file) if isinstance(file, str) else None
        if known is None:
            return ALL
        size, told = known
        left -= size
        if told is None or left < 0:
            return ALL
        if not all(is_registry_of_users(module, chain) for chain in told.registries):
            return ALL
        _add_all(found, told.names)
    return found


def _add_all(found: dict[str, bool], names: Stored) -> None:
    for name, is_code in names.items():
        found[name] = is_code or found.get(name, False)


def _told_in(file: str) -> tuple[int, Told | None] | None:
    """The size of a file, and what is in it; ``None`` if that says nothing of what runs."""
    if not file.endswith((".py", ".pyw")):
        return None
    try:
        status = os.stat(file)
        state = status.st_mtime_ns, status.st_size
        if status.st_mtime > _BEGUN:
            # It may have been edited since it was imported.
            return None
        with _lock:
            known = _known.get(file)
        if known is None or known[0] != state:
            with open(file, encoding="utf-8") as opened:
                text = opened.read()
            known = state, told_by(text, parsed(file, text))
            with _lock:
                _known[file] = known
    except (OSError, UnicodeDecodeError):
        return None
    return status.st_size, known[1]


def told_by(text: str, tree: ast.Module | None = None) -> Told | None:
    """What a text of Python tells, or ``ALL`` if it may give anything to anything.

    Args:
        text: of a module.
        tree: its syntax, if that is known.
    """
    # As Python reads names; quotes that are none to it stay as they are.
    plain = text if text.isascii() else _WORD.sub(_normal, text)
    if _ANY.search(plain) or (_FROM_SYS.search(plain) and _MODULES.search(plain)):
        return ALL
    try:
        tree = tree or ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # Nobody has imported it so, or it is nested too deeply for this process.
        return ALL
    registries = registries_in(tree) if WORD.search(plain) else frozenset()
    if registries is None:
        return ALL
    found = _names_in_syntax(tree, _NAMESPACES.search(plain) is not None)
    # Those that are private get the name of a class, too.
    if found is None or any(name[:2] == "__" != name[-2:] for name in found):
        return ALL
    return Told(found, registries)


def _normal(found: re.Match[str]) -> str:
    return unicodedata.normalize("NFKC", found[0])


def _names_in_syntax(tree: ast.Module, has_namespaces: bool) -> Stored | None:
    """Those that are assigned to, or set by ``setattr``, or ``ALL``.

    Args:
        tree: of a file of Python.
        has_namespaces: whether the words are in it that namespaces of objects are asked for by.
    """
    pending: list[ast.AST] = [tree]
    found: dict[str, bool] = {}
    owners: dict[int, ast.expr] = {}
    plain: set[int] = set()
    while pending:
        node = pending.pop()
        if has_namespaces:
            if _is_of_self(node) or _is_docstring(node):
                continue
            if _is_namespace(node):
                # Somebody calls it by another name, or may put something in.
                return ALL
            # Of what is only read, the object that it is of goes on.
            owners = {id(it): owner for it in _read(node) if (owner := _owner(it)) is not None}
        if isinstance(node, ast.Assign | ast.AnnAssign) and _is_plain(node.value):
            plain.update(map(id, node.targets if isinstance(node, ast.Assign) else [node.target]))
        elif type(node) in _TELLING:
            if _is_setattr(node):
                return ALL
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                if not _is_self(node.value):
                    _add_all(found, {node.attr: id(node) not in plain or node.attr[:2] == "__"})
            elif isinstance(node, ast.Call) and _is_setattr(node.func):
                name = _name_set(node)
                if name is None:
                    return ALL
                _add_all(found, {name: True})
                pending += [*node.args, *node.keywords]
                continue
        for value in vars(node).values():
            if isinstance(value, list):
                pending += [owners.get(id(it), it) for it in value if isinstance(it, ast.AST)]
            elif isinstance(value, ast.AST):
                pending.append(owners.get(id(value), value))
    found.pop("", None)
    return found


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
        return [node.left, *node.comparators]
    return [node.iter] if isinstance(node, ast.For | ast.comprehension) else []


def _owner(node: ast.expr | None) -> ast.expr | None:
    """Whose namespace this is: ``x`` of ``vars(x)`` and ``x.__dict__``."""
    if isinstance(node, ast.Attribute) and node.attr == _DICT:
        return node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == _VARS:
        is_plain = len(node.args) == 1 and not node.keywords
        return node.args[0] if is_plain and not isinstance(node.args[0], ast.Starred) else None
    return None


def _is_of_self(node: ast.AST) -> bool:
    """Whether this is the namespace of ``self``, or all that is there is given to that."""
    owner = _owner(node) if isinstance(node, ast.Attribute | ast.Call) else None
    return owner is not None and _is_self(owner)


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


def _is_self(node: ast.AST) -> bool:
    """Whether this is what a method has as ``self``, which is no library."""
    return isinstance(node, ast.Name) and node.id == "self"


def _is_setattr(node: ast.AST) -> bool:
    """Whether this means ``setattr``, by its name or by a text."""
    if isinstance(node, ast.Name):
        return node.id == _SETATTR
    if isinstance(node, ast.Attribute):
        return node.attr == _SETATTR
    if isinstance(node, ast.alias):
        return node.name.endswith(_SETATTR)
    return isinstance(node, ast.Constant) and node.value == _SETATTR


def _name_set(call: ast.Call) -> str | None:
    """The name that a call of ``setattr`` sets; empty for one of ``self``."""
    given = call.args
    if len(given) == 3 and not any(isinstance(each, ast.Starred) for each in given):
        if _is_self(given[0]):
            return ""
        if isinstance(given[1], ast.Constant) and isinstance(given[1].value, str):
            return given[1].value
    return None
