"""Modules of the user's that others import, and that are not there, or not as modules.

One that fails when it is imported has run, and so has one that has put an object in its place.
Python keeps neither, and nobody but who looks for their files finds what they have done.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from typing import Any

from yogadl.recipes._assigned import Imported
from yogadl.recipes._owners import is_library_file, is_standard


def package_of(module: types.ModuleType) -> str:
    """The name of the package that the relative imports of a module are of."""
    space = vars(module)
    return space.get("__package__") or str(space.get("__name__", "")).rpartition(".")[0]


class MissingFiles:
    """What modules import and that is not there, as long as the same modules are loaded."""

    def __init__(self) -> None:
        # By the package and where the imports are in memory, which are kept.
        self._known: dict[tuple[str, int], tuple[object, list[tuple[str, str]]]] = {}

    def of(self, package: str, imports: frozenset[Imported]) -> list[tuple[str, str]]:
        """The files of what is imported and not there, as far as it is the user's, each with its
        own package; maybe more than once.

        Args:
            package: of who imports.
            imports: what it imports.
        """
        known = self._known.get((package, id(imports)))
        if known is None:
            known = self._known[package, id(imports)] = imports, list(_missing(package, imports))
        return known[1]


def _missing(package: str, imports: Iterable[Imported]) -> Iterator[tuple[str, str]]:
    for each in imports:
        name = _absolute(package, each)
        if not name or is_standard(name):
            continue
        if each.member and _may_be_module(name, each.member):
            name = f"{name}.{each.member}"
        if not _is_there(name):
            yield from _files_of(name)


def _absolute(package: str, each: Imported) -> str:
    """The name of the module of an import; empty if there is none."""
    if not each.level:
        return each.module
    try:
        return importlib.util.resolve_name("." * each.level + each.module, package)
    except ImportError:
        return ""


def _may_be_module(name: str, member: str) -> bool:
    """Whether what is imported of a module may be another module, in it."""
    module: Any = sys.modules.get(name)
    if not _is_module(module):
        return False
    space = vars(module)
    return "__path__" in space and (member not in space or f"{name}.{member}" in sys.modules)


def _is_module(value: Any) -> bool:
    return issubclass(type(value), types.ModuleType)


def _is_there(name: str) -> bool:
    return _is_module(sys.modules.get(name))


def _files_of(name: str) -> Iterator[tuple[str, str]]:
    """The files of a module and of the packages that it is in, of those that are not there."""
    places: Sequence[str] | None = None
    end = 0
    while end < len(name):
        end = name.find(".", end + 1)
        end = len(name) if end < 0 else end
        part = name[:end]
        module: Any = sys.modules.get(part)
        if _is_module(module):
            places = list(vars(module).get("__path__", ()))
            continue
        spec = _spec_of(part, places)
        if spec is None:
            return
        places = spec.submodule_search_locations
        if spec.has_location and isinstance(spec.origin, str):
            if is_library_file(spec.origin):
                return
            yield spec.origin, part if places is not None else part.rpartition(".")[0]
        if places is None:
            return


def _spec_of(name: str, places: Sequence[str] | None) -> ModuleSpec | None:
    """Where a module would come from, which is not imported."""
    for finder in sys.meta_path:
        try:
            found = finder.find_spec(name, places)
        except (ImportError, ValueError, AttributeError):
            continue
        if found is not None:
            return found
    return None
