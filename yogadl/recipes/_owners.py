"""Whose code is whose: the user's own, or a library's, which counts by its version."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import pathlib
import sys
import sysconfig
import types
from typing import Any

_OWN = str(pathlib.Path(__file__).resolve().parent.parent)
_INSTALLED = frozenset(("site-packages", "dist-packages"))
_DISTRIBUTIONS = {
    "PIL": ("pillow",),
    "bs4": ("beautifulsoup4",),
    "cv2": ("opencv-python", "opencv-python-headless", "opencv-contrib-python"),
    "dateutil": ("python-dateutil",),
    "skimage": ("scikit-image",),
    "sklearn": ("scikit-learn",),
    "tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-macos", "tf-nightly"),
    "yaml": ("PyYAML",),
}
_INSIDE = ("built-in", "frozen")
# Modules of Python's that come without what says where they are from.
_MADE = ("pyexpat.errors", "pyexpat.model")
_MISSING = object()
_ABOVE = f"{os.sep}.."
YOGADL = "yogadl"
PYTHON = "python"


def is_library_file(name: str) -> bool:
    """Whether a file is of an installed library, of Python, or of yogadl."""
    # Nearly all of thousands.
    if name.startswith(_library_folders()) and _ABOVE not in name:
        return True
    return _is_library_file(name)


@functools.lru_cache(maxsize=4096)
def _is_library_file(name: str) -> bool:
    if name.startswith("<"):
        return name.startswith("<frozen ")
    path = os.path.abspath(name)
    return path.startswith(_library_folders()) or not _INSTALLED.isdisjoint(path.split(os.sep))


@functools.lru_cache(maxsize=1)
def _library_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    found = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    found |= {os.path.dirname(os.__file__), _OWN}
    return tuple({f"{folder}{os.sep}" for one in found for folder in (one, os.path.realpath(one))})


def is_of_yogadl(function: types.FunctionType) -> bool:
    """Whether a function is of yogadl's own code."""
    return os.path.realpath(function.__code__.co_filename).startswith(f"{_OWN}{os.sep}")


def is_library(module: str) -> bool:
    """Whether a module that is imported is a library's."""
    # A class that is made in C may have anything there. What runs a program, as ``python -m
    # cProfile`` does, is the main module itself, and what it runs says that it is of that, too.
    if not isinstance(module, str) or module in ("", "__main__"):
        return False
    return _is_library(sys.modules.get(module), module)


def _is_library(module: Any, name: str) -> bool:
    if not issubclass(type(module), types.ModuleType):
        # Named by what was made otherwise, or by what a library puts there for itself.
        return is_standard(name) or (module is not None and is_library(name.rpartition(".")[0]))
    return is_library_module(module)


def is_library_module(module: types.ModuleType) -> bool:
    """Whether a module is a library's."""
    space = vars(module)
    # Nearly all of thousands have one.
    file = space.get("__file__")
    if isinstance(file, str):
        return is_library_file(file)
    name = space.get("__name__", "")
    if name == "__main__":
        return False
    folder = _folder(space)
    if folder:
        return is_library_file(folder)
    spec = space.get("__spec__")
    origin = getattr(spec, "origin", None)
    if origin in _INSIDE:
        return True
    # What was made by hand, or is of a class of the user's, may have taken the place of Python's.
    is_pythons = is_standard(str(name)) and is_standard(str(type(module).__module__))
    return is_pythons and (spec is not None or name in _MADE)


def name_of_module(module: types.ModuleType) -> str:
    """The name of a module; empty for one of a class of its own, say, that has none."""
    return str(vars(module).get("__name__", ""))


def _folder(space: dict[str, Any]) -> str:
    """Of a package without a file of its own; empty if there is none."""
    try:
        return os.path.join(next(iter(space.get("__path__", ()))), "")
    except (StopIteration, TypeError):
        return ""


def is_standard(name: str) -> bool:
    """Whether a name is of one of Python's own modules."""
    top = name.partition(".")[0]
    return top in sys.stdlib_module_names or top in sys.builtin_module_names


def is_installed(name: str) -> bool | None:
    """Whether a module that need not be imported is a library's; ``None`` if there is none."""
    top = name.partition(".")[0]
    if top in sys.builtin_module_names and not _is_users(sys.modules.get(top)):
        return True
    found: bool | None = None
    # Not by its name: a module of the user's may have that of one of Python's. What is in a
    # namespace may be of several, and is looked for without running anything.
    for end in _ends(name):
        known = sys.modules.get(name[:end], _MISSING)
        if known is None:
            # Python takes it for none, as programs say with that.
            return None
        if known is not _MISSING and not _is_namespace(known):
            return not _is_users(known) and is_library(name[:end])
        try:
            spec = importlib.util.find_spec(name[:end])
        except (ImportError, ValueError):
            # A package may have been made by hand.
            return found if known is _MISSING else is_library(name[:end])
        if spec is None:
            return found
        if spec.origin in _INSIDE:
            return True
        places = [spec.origin or "", *(spec.submodule_search_locations or ())]
        found = any(is_library_file(os.path.join(place, "")) for place in places if place)
        if spec.origin is not None:
            break
    return found


def _is_users(module: Any) -> bool:
    """Whether what is there as a module is the user's: one, or an object or class in its place."""
    if issubclass(type(module), types.ModuleType):
        return not is_library_module(module)
    return not is_library((module if issubclass(type(module), type) else type(module)).__module__)


def space_of(module: Any) -> dict[str, Any]:
    """What the module of a name has, if there is one, which is a module and no object in its
    place."""
    found: Any = sys.modules.get(module) if isinstance(module, str) else None
    return vars(found) if issubclass(type(found), types.ModuleType) else {}


def _ends(name: str) -> list[int]:
    """Where the names of the packages end that a module is in, and its own."""
    return [*(at for at, letter in enumerate(name) if letter == "."), len(name)]


def _is_namespace(module: Any) -> bool:
    space = vars(module) if issubclass(type(module), types.ModuleType) else {}
    return space.get("__file__") is None and "__path__" in space


def version_of(module: str) -> tuple[str, str]:
    """The name and the version of the library that a module is of; no version for Python's own, and
    where none can be told."""
    return _version_of(module.partition(".")[0])


@functools.lru_cache(maxsize=1024)
def _version_of(top: str) -> tuple[str, str]:
    if top == YOGADL:
        # What it stores is the same for any version.
        return YOGADL, ""
    if is_standard(top):
        return PYTHON, ""
    if _is_namespace(sys.modules.get(top)):
        # It may be of any of those that have something in it.
        return top, ", ".join(f"{name} {version}" for name, version in _distributions(top))
    for name in _DISTRIBUTIONS.get(top, (top,)):
        found = _version(name)
        if found:
            return name, found
    declared = getattr(sys.modules.get(top), "__version__", None)
    if isinstance(declared, str):
        return top, declared
    return next(iter(_distributions(top)), (top, ""))


def _distributions(top: str) -> list[tuple[str, str]]:
    """What is installed that has a module or package of a name."""
    if top not in _by_top():
        # It may have been installed since.
        _by_top.cache_clear()
    names = sorted({str(one.metadata["Name"]) for one in _by_top().get(top, ())})
    return [(name, version) for name in names if (version := _version(name))]


@functools.lru_cache(maxsize=1)
def _by_top() -> dict[str, list[importlib.metadata.Distribution]]:
    """What is installed, by the names of the modules and packages that it has."""
    # importlib.metadata.packages_distributions says the same in ten times the time.
    found: dict[str, list[importlib.metadata.Distribution]] = {}
    for one in importlib.metadata.distributions():
        for top in _tops(one):
            found.setdefault(top, []).append(one)
    return found


def _tops(distribution: importlib.metadata.Distribution) -> set[str]:
    declared = (distribution.read_text("top_level.txt") or "").split()
    if declared:
        return set(declared)
    record = distribution.read_text("RECORD")
    if record is None:
        return {file.parts[0].partition(".")[0] for file in distribution.files or ()}
    return {line.partition("/")[0].partition(".")[0] for line in record.splitlines()}


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return ""
