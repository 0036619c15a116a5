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
import tokenize
import types
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from yogadl.recipes._assigned import ALL, TABLES, Stored, assigned_in
from yogadl.recipes._members import Member, is_of_library, names_in
from yogadl.recipes._missing import MissingFiles
from yogadl.recipes._registering import WORD, WORD_OF_ANY, Chain, registries_in
from yogadl.recipes._registries import is_registry_of_users
from yogadl.recipes._scopes import Import, package_of
from yogadl.recipes._sources import parsed

_BEGUN = time.time()
_MOST_BYTES = 4 << 20
# What is too clever to be found out; a word of them in a comment is enough.
_ANY = re.compile(
    "|".join(
        (
            r"\b(?:__setattr__|__self__|__globals__|__builtins__|f_globals|update_wrapper)\b",
            r"\b(?:mock|mocker|monkeypatch|MonkeyPatch|wrapt|copyreg|runpy)\b",
            r"\b(?:__code__|cell_contents|get_referents|get_referrers|f_builtins)\b",
            # Texts that run, with no word that says so.
            r"\b(?:doctest|runctx|runsource|source_to_code|timeit)\b",
            # Beside ``sys``, what says where Python looks for modules: one that has failed may be
            # of elsewhere, where nobody finds it now, or finds another.
            r"\b(?:__path__|submodule_search_locations|extend_path|f?chdir|addsitedir)\b",
            r"\b(?:exec_module|load_module|load_source|spec_from_file_location|SourceFileLoader)\b",
            r"\bexec\s*\(|(?<![\w.])(?:eval|compile)\s*\(|\b(?:pydoc|resolve_name|walk_packages)\b",
        )
    )
)
# By which names may get values that no statement gives them.
_CLEVER = re.compile(r"\b(?:(?:f_)?(?:globals|locals)|__prepare__|global_enum|_convert_)\b")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Told:
    """What a text tells.

    Attributes:
        names: of attributes that it may give to anything.
        members: other such names, and what is given under these if that is what it seems to be.
        registries: what it may register something with, if that is a library's.
        imports: what it imports.
        is_clever: whether names, in whichever module, may get values that no statement gives them.
    """

    names: Stored
    members: tuple[tuple[str, frozenset[Member]], ...] = ()
    registries: frozenset[Chain] = frozenset()
    imports: frozenset[Import] = frozenset()
    is_clever: bool = False


_known: dict[str, tuple[tuple[int, int], Told | None]] = {}
_lock = threading.Lock()


def names_stored(modules: Iterable[types.ModuleType], missing: MissingFiles) -> Stored | None:
    """The names of attributes that the code of some modules may have given to anything, or ``ALL``.

    Args:
        modules: all of the user's.
        missing: which files these import that are not there as modules.
    """
    every = _Every()
    for module in modules:
        file = vars(module).get("__file__")
        if not isinstance(file, str):
            return ALL
        told = every.add(file, package_of(vars(module)), vars(module))
        if told is None:
            return ALL
        if not all(is_registry_of_users(module, chain) for chain in told.registries):
            return ALL
    # One that has failed, or has put something else in its place, may have given something to
    # libraries before.
    known = set[str]()
    while every.imports:
        for file, package in missing.of(*every.imports.pop()):
            if file not in known:
                known.add(file)
                told = every.add(file, package)
                if told is None or told.registries:
                    return ALL
    return every.all_names()


class _Every:
    """What the texts of all modules tell together.

    Attributes:
        imports: what they import, each with its package.
    """

    def __init__(self) -> None:
        self.imports: list[tuple[str, frozenset[Import]]] = []
        self._names: dict[str, bool] = {}
        self._members: list[tuple[str, frozenset[Member]]] = []
        self._left = _MOST_BYTES
        self._is_clever = False

    def add(self, file: str, package: str, space: Mapping[str, Any] | None = None) -> Told | None:
        """Adds what a file tells; ``None`` if that may be anything.

        Args:
            file: of Python.
            package: of the module.
            space: what the module has, if it is there.
        """
        known = _told_in(file)
        told = None if known is None else known[1]
        if known is None or told is None:
            return None
        self._left -= known[0]
        if self._left < 0:
            return None
        self.imports.append((package, told.imports))
        self._is_clever |= told.is_clever
        for name, is_code in told.names.items():
            self._names[name] = is_code or self._names.get(name, False)
        for name, members in told.members:
            if space is None or not all(is_of_library(it, space) for it in members):
                self._names[name] = True
            else:
                self._members.append((name, members))
        return told

    def all_names(self) -> Stored:
        """The names of attributes that they may give to anything."""
        given = {*self._names, *(name for name, _ in self._members)}
        found = dict(self._names)
        for name, members in self._members:
            # By what another name has got, it may have been something else.
            is_code = self._is_clever or not given.isdisjoint(names_in(members))
            found[name] = is_code or found.get(name, False)
        return found


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
            # In the encoding that it says it has.
            with tokenize.open(file) as opened:
                text = opened.read()
            known = state, told_by(text, parsed(file, text))
            with _lock:
                _known[file] = known
    except (OSError, SyntaxError, UnicodeDecodeError, LookupError):
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
    if _ANY.search(plain):
        return ALL
    try:
        tree = tree or ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # Nobody has imported it so, or it is nested too deeply for this process.
        return ALL
    found = assigned_in(tree, TABLES.search(plain) is not None)
    # Those that are private get the name of a class, too.
    if found is None or any(name[:2] == "__" != name[-2:] for name in found.names):
        return ALL
    word = WORD if found.trusts_self else WORD_OF_ANY
    registries = registries_in(tree, found.trusts_self) if word.search(plain) else frozenset()
    if registries is None:
        return ALL
    is_clever = _CLEVER.search(plain) is not None
    imports = frozenset(found.imports)
    return Told(found.names, tuple(found.members), registries, imports, is_clever)


def _normal(found: re.Match[str]) -> str:
    return unicodedata.normalize("NFKC", found[0])
