"""Modules of the user's that code imports, which are imported to be looked at."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Collection, Iterable
from typing import Any

from yogadl.recipes._failures import failure_of
from yogadl.recipes._owners import PYTHON, YOGADL, is_installed, version_of
from yogadl.recipes._protocol import Walk
from yogadl.recipes._scopes import Import, absolute, package_of

_UNSET = "unset"


def imported(walk: Walk, name: str) -> Any:
    """A module, or what takes its place, imported now if it is not yet; ``None`` if that fails, in
    whatever way."""
    if name in walk.failed and name not in sys.modules:
        return None
    known: Any = sys.modules.get(name)
    if known is not None and not issubclass(type(known), types.ModuleType):
        # Nor does Python ask what has taken the place of a module for anything.
        return known
    try:
        return importlib.import_module(name)
    except (RecursionError, KeyboardInterrupt):
        # It need not be the module's fault.
        raise
    except BaseException as error:
        # Of whatever class: test runners have ones of their own for what is skipped.
        walk.failed[name] = failure_of(walk, error, name)
    return None


def failure(walk: Walk, name: str) -> str:
    """How the import of a module has failed, if code can tell that from a module that is not
    there; else empty."""
    return walk.failed.get(name, "")


def import_all(
    walk: Walk, space: dict[str, Any], imports: Iterable[Import], read: Collection[Import | None]
) -> list[str]:
    """Imports those of the user's modules that code imports: they may change others.

    Args:
        walk: that asks.
        space: the globals of the code.
        imports: that it makes.
        read: those of them whose names it reads, which is told where that is.

    Returns:
        How others fail, which code may only try.
    """
    failing = []
    for found in sorted(imports, key=str):
        name = absolute(found, package_of(space))
        # What a walk has met counts where that was, so nothing is looked at that is not told.
        is_counted = found not in read and not _is_ignored(walk, space, name, found)
        told = _tried(walk, name, found.name, is_counted)
        if told and is_counted:
            failing.append(f"import {'.' * found.level}{found.module} {found.name}: {told}")
    return failing


def _is_ignored(walk: Walk, space: dict[str, Any], name: str, found: Import) -> bool:
    names = [name, f"{name}.{found.name}"]
    if walk.is_home(space):
        names.append(found.name or found.module.partition(".")[0])
    return walk.is_ignored(*names)


def _tried(walk: Walk, name: str, member: str, is_counted: bool) -> str:
    """How the import of a module, or of a member of it, fails; empty if it does not."""
    installed = is_installed(name) if name else None
    if installed:
        if is_counted:
            _use_library(walk, name)
        return ""
    if sys.modules.get(name) is None:
        if not name or imported(walk, name) is None:
            return f"{_UNSET}{failure(walk, name)}"
        walk.begin_again()
    module: Any = sys.modules.get(name)
    if not member:
        return ""
    if not issubclass(type(module), types.ModuleType):
        # It has taken the place of its module, and may have any attributes.
        return f"{member} of {walk.token(module)}" if is_counted else ""
    return _lacking(walk, module, name, member, is_counted)


def _lacking(walk: Walk, module: types.ModuleType, name: str, member: str, is_counted: bool) -> str:
    """How the import of a member of a module of the user's fails; empty if it does not."""
    space = vars(module)
    if member in space:
        return ""
    told = _UNSET
    if "__path__" in space and not (told := _tried(walk, f"{name}.{member}", "", is_counted)):
        return ""
    made = space.get("__getattr__")
    by = f" of {walk.token(made)}" if made is not None and is_counted else ""
    return f"{member} {told}{by}"


def _use_library(walk: Walk, name: str) -> None:
    """Takes note of a library that code imports: it may do so for what that does elsewhere."""
    if version_of(name)[0] not in (PYTHON, YOGADL):
        walk.library(name, "")
