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
YOGADL = "yogadl"
PYTHON = "python"


@functools.lru_cache(maxsize=4096)
def is_library_file(name: str) -> bool:
    """Whether a file is of an installed library, of Python, or of yogadl."""
    if name.startswith("<"):
        return name.startswith("<frozen ")
    path = os.path.abspath(name)
    if not _INSTALLED.isdisjoint(pathlib.PurePath(path).parts):
        return True
    return any(path.startswith(folder) for folder in _library_folders())


@functools.lru_cache(maxsize=1)
def _library_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    found = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    found |= {os.path.dirname(os.__file__), _OWN}
    return tuple({f"{folder}{os.sep}" for one in found for folder in (one, os.path.realpath(one))})


def is_library(module: str) -> bool:
    """Whether a module that is imported is a library's."""
    # A class that is made in C may have anything there.
    return isinstance(module, str) and bool(module) and _is_library(sys.modules.get(module), module)


def _is_library(module: Any, name: str) -> bool:
    if not isinstance(module, types.ModuleType):
        # Named by what was made otherwise, or by what a library puts there for itself.
        return _is_standard(name) or (module is not None and is_library(name.rpartition(".")[0]))
    return is_library_module(module)


def is_library_module(module: types.ModuleType) -> bool:
    """Whether a module is a library's."""
    space = vars(module)
    name = space.get("__name__", "")
    if name == "__main__":
        file = space.get("__file__")
        return isinstance(file, str) and is_library_file(file)
    place = _place(space)
    if place:
        return is_library_file(place)
    spec = space.get("__spec__")
    origin = getattr(spec, "origin", None)
    return origin in ("built-in", "frozen") or _is_standard(str(name))


def _place(space: dict[str, Any]) -> str:
    file = space.get("__file__")
    if isinstance(file, str):
        return file
    try:
        return os.path.join(next(iter(space.get("__path__", ()))), "")
    except (StopIteration, TypeError):
        return ""


def _is_standard(name: str) -> bool:
    top = name.partition(".")[0]
    return top in sys.stdlib_module_names or top in sys.builtin_module_names


def is_installed(name: str) -> bool | None:
    """Whether a module that need not be imported is a library's; ``None`` if there is none."""
    top = name.partition(".")[0]
    if top in sys.modules:
        return is_library(top)
    if top in sys.builtin_module_names:
        return True
    # Not by its name: a module of the user's may have that of one of Python's.
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    places = [spec.origin or "", *(spec.submodule_search_locations or ())]
    return any(is_library_file(os.path.join(place, "")) for place in places if place)


@functools.lru_cache(maxsize=1024)
def version_of(module: str) -> tuple[str, str]:
    """The name and the version of the library that a module is of; no version for Python's own."""
    top = module.partition(".")[0]
    if top == YOGADL:
        # What it stores is the same for any version.
        return YOGADL, ""
    if _is_standard(top):
        return PYTHON, ""
    for name in _DISTRIBUTIONS.get(top, (top,)):
        found = _version(name)
        if found:
            return name, found
    declared = getattr(sys.modules.get(top), "__version__", None)
    if isinstance(declared, str):
        return top, declared
    # It takes long, since it reads the lists of files of all that is installed.
    for name in sorted(importlib.metadata.packages_distributions().get(top, ())):
        found = _version(name)
        if found:
            return name, found
    return top, ""


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return ""
