"""What of the user's is in libraries, in a recipe."""

from __future__ import annotations

import abc
import copyreg
import sys
import types
from typing import Any

from yogadl.recipes._abstract import registered, registered_with
from yogadl.recipes._assigned import ALL, Stored
from yogadl.recipes._functions import label_of
from yogadl.recipes._ledger import Ledger
from yogadl.recipes._loaded import Patch, is_immutable, library_of
from yogadl.recipes._made import is_written
from yogadl.recipes._owners import YOGADL, is_library
from yogadl.recipes._patches import found_in, names_put
from yogadl.recipes._protocol import Walk, is_plain


class Patched:
    """What of the user's counts although no code of the user's that was met says so.

    Attributes:
        kinds: classes of the user's that were described last, and their tokens.
    """

    def __init__(self) -> None:
        self.kinds: dict[type, str] = {}
        self._libraries: set[str] = set()
        self._known: set[tuple[int, str]] = set()
        self._met: set[type] = set()
        self._imported: set[type] = set()
        self._modules: set[types.ModuleType] = set()
        self._is_unseen = False
        self._asked: tuple[int, int, bool] | None = None
        self._found: tuple[list[Patch], list[abc.ABCMeta]] = [], []
        self._put: tuple[Stored | None] | None = None
        self._described: dict[type, str] = {}

    def use(self, module: str) -> None:
        """Says that something of a library was met."""
        self._libraries.add(library_of(module))

    def meet(self, kind: type) -> None:
        """Says that a class was met, or an object of one."""
        if kind not in self._met:
            self._met.add(kind)
            self.use(kind.__module__)

    def meet_imported(self, kind: type) -> None:
        """Says that a class was met that a function imports itself, and that may not be there the
        first time."""
        self._imported.update(kind.__mro__)

    def meet_module(self, module: types.ModuleType) -> None:
        """Says that code has a library's module as a value, of which it may use anything."""
        self._modules.add(module)

    def is_put(self, module: str, owner: str, name: str, value: Any) -> bool:
        """Whether the user may have given something in a module of a library a plain value, as far
        as its text and that of the user's code tell; see ``is_written``."""
        if not self._is_unseen:
            if self._put is None:
                # A walk that imports more begins again.
                self._put = (names_put(),)
            (names,) = self._put
            if names is not ALL and name not in names:
                return False
        return not is_written(module, owner, name, value)

    def meet_code(self, space: dict[str, Any]) -> None:
        """Says that code of the user's was met, by its globals, which need not be of a module that
        is kept: of a program that another runs, as ``python -m cProfile`` does."""
        module = sys.modules.get(str(space.get("__name__")), types)
        self._is_unseen |= getattr(module, "__dict__", None) is not space

    def add(self, walk: Walk, ledger: Ledger) -> bool:
        """Adds what is new; whether there was anything that has to be described."""
        asked = len(self._libraries), len(sys.modules), self._is_unseen
        if asked != self._asked:
            # What is described meanwhile puts nothing into libraries but what it imports.
            self._found = found_in(self._libraries, self._is_unseen)
            self._asked = asked
        patches, bases = self._found
        due = [it for it in patches if (id(it.owner), it.name) not in self._known]
        for patch in due:
            self._known.add((id(patch.owner), patch.name))
            if not walk.is_ignored(patch.label):
                walk.restart("")
                walk.item("patch", patch.owner, patch.name, patch.label, patch.value)
        kinds, self.kinds = self.kinds, {}
        self._described.update(kinds)
        for kind, names in registered(bases, kinds).items():
            ledger.add(kinds[kind], f"registered with {','.join(sorted(names))}")
        reduced = copyreg.dispatch_table.keys() & kinds.keys()
        for kind in sorted(reduced, key=kinds.__getitem__):
            ledger.begin(f"{kinds[kind]} reduced")
            walk.restart(label_of(kind))
            found = walk.inside(".__reduce__", copyreg.dispatch_table[kind])
            ledger.add(kinds[kind], f"reduced by {found}")
        return bool(due or reduced)

    def add_namesakes(self, ledger: Ledger) -> None:
        """Says of the user's abstract classes, which have the names of what is registered with
        them, which classes only have the same names. What modules are called does not count."""
        bases = [(it, known) for it in self._described if (known := registered_with(it))]
        by_name: dict[str, list[type]] = {}
        for kind in self._described if bases else ():
            by_name.setdefault(kind.__qualname__, []).append(kind)
        for base, known in bases:
            others = {
                self._described[other]
                for kind in known
                for other in by_name.get(kind.__qualname__, ())
                if other not in known
            }
            for token in sorted(others):
                ledger.add(self._described[base], f"not registered {token}")

    def add_values(self, walk: Walk, *names: set[str]) -> None:
        """Adds the plain values that the user may have put into modules that are used as values, as
        far as code, or texts that it has, use their names."""
        for module in sorted(self._modules, key=lambda it: it.__name__):
            space = vars(module)
            for name in sorted(it for it in list(space) if any(it in some for some in names)):
                label = f"{module.__name__}.{name}"
                is_told = name[:2] != "__" and is_plain(space[name]) and not walk.is_ignored(label)
                # Libraries change their own, and make them of where they run.
                if is_told and self.is_put(module.__name__, "", name, space[name]):
                    walk.restart("")
                    walk.item("constant", module, name, label, space[name])

    def add_constants(self, walk: Walk, names: set[str], texts: set[str]) -> None:
        """Adds what classes of libraries have as plain values, as far as code uses their names; of
        those whose names are only in texts, what the user may have put there."""
        met = {one for kind in self._met for one in kind.__mro__}
        owners = {one for one in met | self._imported if not is_immutable(one)}
        for owner in sorted(owners, key=label_of):
            if not is_library(owner.__module__) or library_of(owner.__module__) == YOGADL:
                continue
            for name in sorted((names | texts) & vars(owner).keys()):
                label = f"{label_of(owner)}.{name}"
                value = vars(owner)[name]
                if name[:2] == "__" or not is_plain(value) or walk.is_ignored(label):
                    continue
                # What is not met is the same whether the class is there or not.
                is_told = owner in met and name in names
                if is_told or self.is_put(owner.__module__, owner.__qualname__, name, value):
                    walk.restart("")
                    walk.item("constant", owner, name, label, value)
