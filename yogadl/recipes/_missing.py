"""Modules of the user's that others import, and that are not there, or not as modules.

One that fails when it is imported has run, and so has one that has put an object in its place.
Python keeps neither, and nobody but who looks for their files finds what they have done.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from typing import Any

from yogadl.recipes._owners import is_library_file, is_library_module, space_of
from yogadl.recipes._scopes import Import, absolute

UNTOLD = ""
"""Stands for the file of a module of which it cannot be told where it is from."""


class MissingFiles:
    """What modules import and that is not there, as long as the same modules are loaded."""

    def __init__(self) -> None:
        # By the package and where the imports are in memory, which are kept.
        self._known: dict[tuple[str, int], tuple[object, list[tuple[str, str]]]] = {}
        self._specs: dict[str, ModuleSpec | None] = {}

    def of(self, package: str, imports: frozenset[Import]) -> list[tuple[str, str]]:
        """The files of what is imported and not there, as far as it is the user's, each with its
        own package; maybe more than once. Among them, ``UNTOLD``.

        Args:
            package: of who imports.
            imports: what it imports.
        """
        known = self._known.get((package, id(imports)))
        if known is None:
            found = [it for each in imports for it in self._missing(package, each)]
            known = self._known[package, id(imports)] = imports, found
        return known[1]

    def _missing(self, package: str, each: Import) -> Iterator[tuple[str, str]]:
        name = absolute(each, package)
        top = name.partition(".")[0]
        # Another may be in its place.
        if not name or is_librarys(top):
            return
        if not _is_there(name):
            yield from self._files_of(name)
            return
        space = space_of(name)
        if "__path__" in space:
            members, listed = [each.name], space.get("__all__")
            if each.name == "*" and isinstance(listed, list | tuple):
                members = [it for it in listed if isinstance(it, str)]
            for member in members:
                # What is there under its name may have come in its place.
                if member and not _is_there(f"{name}.{member}"):
                    yield from self._files_of(f"{name}.{member}")

    def _files_of(self, name: str) -> Iterator[tuple[str, str]]:
        """The files of a module and of the packages that it is in, of those that are not there."""
        places: list[str] | None = None
        end = 0
        while end < len(name):
            end = name.find(".", end + 1)
            end = len(name) if end < 0 else end
            part = name[:end]
            if _is_there(part):
                places = list(space_of(part).get("__path__", ()))
                continue
            try:
                spec = self._spec_of(part, places)
            except Exception:
                # A finder of somebody's may fail in any way.
                yield UNTOLD, ""
                return
            if spec is None:
                if places is not None:
                    yield UNTOLD, ""
                return
            places = spec.submodule_search_locations
            if spec.has_location and isinstance(spec.origin, str):
                if is_library_file(spec.origin):
                    return
                yield spec.origin, part if places is not None else part.rpartition(".")[0]
            if places is None:
                return

    def _spec_of(self, name: str, places: list[str] | None) -> ModuleSpec | None:
        """Where a module would come from, which is not imported."""
        if name not in self._specs:
            self._specs[name] = None
            for finder in list(sys.meta_path):
                find: Any = getattr(finder, "find_spec", None)
                # As Python calls it.
                found = None if find is None else find(name, places, None)
                if found is not None:
                    self._specs[name] = found
                    break
        return self._specs[name]


def is_librarys(top: str) -> bool:
    """Whether the module of a name at the top is there, and a library's, with all that is in it.
    Packages of several may have one name."""
    if not _is_there(top):
        return False
    module = sys.modules[top]
    places = vars(module).get("__path__", ())
    return is_library_module(module) and all(
        isinstance(it, str) and is_library_file(os.path.join(it, "")) for it in list(places)
    )


def _is_module(value: Any) -> bool:
    return issubclass(type(value), types.ModuleType)


def _is_there(name: str) -> bool:
    """Whether a module of a name is there, and not another that somebody has put in its place."""
    module: Any = sys.modules.get(name)
    if not _is_module(module):
        return False
    space = vars(module)
    # One that was made by hand comes from nowhere.
    is_made = getattr(space.get("__spec__"), "loader", None) is None
    return name == "__main__" or (space.get("__name__") == name and not is_made)
