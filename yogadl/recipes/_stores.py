"""Which attributes the user's code may give to what is not its own, as far as its text tells.

Libraries have a hundred thousand values, and hardly anybody puts something among them. So it is
asked first under which names anybody could have: every name that stands before an ``=`` behind a
dot. What is too clever for that, such as ``setattr`` of a name that is put together, makes all
names possible, and so does code without a text.
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
# What is before an ``=`` that assigns. A method has itself as ``self``, which is no library.
_ASSIGNED = r"(?:[-+*/%&|^@]|//|\*\*|<<|>>)?=(?!=)"
_SET_NAME = r"\bsetattr\s*\([^,()\n]+,\s*['\"](\w+)['\"]\s*,"
_NAMES = re.compile(
    "|".join(
        (
            rf"(?<![\s(\[,;:=]self)\.\s*(\w+)\s*(?::[^=\n]+(?<![<>!:]))?{_ASSIGNED}",
            # In a tuple or list.
            r"(?<![\s(\[,;:=]self)\.\s*(\w+)(?=\s*[,)\]][^=\n;]*=(?!=))",
            _SET_NAME,
        )
    )
)
_SET = re.compile(_SET_NAME)
_ANY = re.compile(
    "|".join(
        (
            r"\bsetattr\b(?!\s*\(\s*self\s*,)(?!\s*\([^,()\n]+,\s*['\"]\w+['\"]\s*,)",
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
# Targets of loops and contexts, and such as may go on from one line to the next, or have several
# names, are left to the parser.
_LONG = re.compile(
    "|".join(
        (
            r"\\\n",
            r"\bfor\b(?:(?!\bin\b)[^\n])*?(?:\.|[(\[][^\n)\]]*$)",
            r"\bas\s+[^\n:,]*?\.|\bas\s*[(\[]",
            # What is compared before anything is assigned.
            r"\.\s*\w+\s*[,)\]:][^\n]*?(?:[=!<>]=|;)[^\n]*?(?<![=!<>])=(?!=)",
        )
    ),
    re.MULTILINE,
)

_FOR, _BEHIND_TARGETS = re.compile(r"\bfor\b"), re.compile(r"\bin\b|[=;]")
# These expressions take the square of the time in a line, and a parser does not.
_LONGEST_LINE = 500

# What a line assigns to, if that ends with a bracket.
_CLOSED = re.compile(r"^[^\n]*?[)\]][^=\n]*=(?!=)", re.MULTILINE)

_WORD = re.compile(r"\w+")

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
    if not text.isascii():
        # As Python reads names; quotes that are none to it stay as they are.
        text = _WORD.sub(lambda found: unicodedata.normalize("NFKC", found[0]), text)
    if _ANY.search(text) or (_FROM_SYS.search(text) and _MODULES.search(text)):
        return ALL
    if _needs_parser(text):
        found = _names_in_syntax(text)
    else:
        found = {name for groups in _NAMES.findall(text) for name in groups if name}
    # Those that are private get the name of a class, too.
    if found is None or any(name[:2] == "__" != name[-2:] for name in found):
        return ALL
    return frozenset(found)


def _needs_parser(text: str) -> bool:
    """Whether expressions do not find all names, or take long for it."""
    return (
        any(len(line) > _LONGEST_LINE for line in text.split("\n"))
        or bool(_LONG.search(text))
        or _has_attribute_targets(text)
        or any(map(_closes_more, _CLOSED.findall(text)))
    )


def _has_attribute_targets(text: str) -> bool:
    """Whether loops may have attributes as targets, over however many lines."""
    behind = 0
    while (begun := _FOR.search(text, behind)) and (
        ended := _BEHIND_TARGETS.search(text, begun.end())
    ):
        if ended[0] == "in" and text.find(".", begun.end(), ended.start()) >= 0:
            return True
        behind = ended.end()
    return False


def _closes_more(line: str) -> bool:
    """Whether a line closes brackets that it has not opened."""
    return line.count(")") + line.count("]") > line.count("(") + line.count("[")


def _names_in_syntax(text: str) -> set[str] | None:
    """The same, by parsing it, which takes longer."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # Of brackets that are nested too deeply, it may be any.
        return ALL
    stored = {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
    return stored | set(_SET.findall(text))
