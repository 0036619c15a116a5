"""Which attributes the user's code may give to what is not its own, as far as its text tells.

Libraries have a hundred thousand values, and hardly anybody puts something among them. So it is
asked first under which names anybody could have: every name of an attribute that is assigned to.
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
from collections.abc import Iterable

ALL = None
"""Stands for all names."""

_BEGUN = time.time()
_MOST_BYTES = 4 << 20
# What is too clever to be found out; a word of them in a comment is enough.
_ANY = re.compile(
    "|".join(
        (
            r"\b(?:__setattr__|__dict__|__globals__|__builtins__|f_globals|vars|update_wrapper)\b",
            r"\b(?:mock|mocker|monkeypatch|wrapt|copyreg|runpy)\b|(?<!\bself\.)\bregister\w*\b",
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
_SETATTR = "setattr"
_TELLING = {ast.Attribute, ast.Call, ast.Name, ast.alias, ast.Constant}

_known: dict[str, tuple[tuple[int, int], frozenset[str] | None]] = {}
_lock = threading.Lock()


def names_stored(modules: Iterable[types.ModuleType]) -> frozenset[str] | None:
    """The names of attributes that the code of some modules may have given to anything, or ``ALL``.

    Args:
        modules: all of the user's.
    """
    found: set[str] = set()
    left = _MOST_BYTES
    for module in modules:
        file = vars(module).get("__file__")
        known = _names_in(file) if isinstance(file, str) else None
        if known is None:
            return ALL
        size, names = known
        left -= size
        if names is None or left < 0:
            return ALL
        found |= names
    return frozenset(found)


def _names_in(file: str) -> tuple[int, frozenset[str] | None] | None:
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
                known = state, names_in(opened.read())
            with _lock:
                _known[file] = known
    except (OSError, UnicodeDecodeError):
        return None
    return status.st_size, known[1]


def names_in(text: str) -> frozenset[str] | None:
    """The names of attributes that a text of Python may give to anything, or ``ALL``."""
    # As Python reads names; quotes that are none to it stay as they are.
    plain = text if text.isascii() else _WORD.sub(_normal, text)
    if _ANY.search(plain) or (_FROM_SYS.search(plain) and _MODULES.search(plain)):
        return ALL
    found = _names_in_syntax(text)
    # Those that are private get the name of a class, too.
    if found is None or any(name[:2] == "__" != name[-2:] for name in found):
        return ALL
    return frozenset(found)


def _normal(found: re.Match[str]) -> str:
    return unicodedata.normalize("NFKC", found[0])


def _names_in_syntax(text: str) -> set[str] | None:
    """Those that are assigned to, or set by ``setattr``, or ``ALL``."""
    try:
        pending: list[ast.AST] = [ast.parse(text)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # Nobody has imported it so, or it is nested too deeply for this process.
        return ALL
    found: set[str] = set()
    while pending:
        node = pending.pop()
        if type(node) in _TELLING:
            if _is_setattr(node):
                # Somebody calls it by another name.
                return ALL
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                if not _is_self(node.value):
                    found.add(node.attr)
            elif isinstance(node, ast.Call) and _is_setattr(node.func):
                name = _name_set(node)
                if name is None:
                    return ALL
                found.add(name)
                pending += [*node.args, *node.keywords]
                continue
        for value in vars(node).values():
            if isinstance(value, list):
                pending += [each for each in value if isinstance(each, ast.AST)]
            elif isinstance(value, ast.AST):
                pending.append(value)
    return found - {""}


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
