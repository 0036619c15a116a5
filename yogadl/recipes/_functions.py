"""What a function is: its code, and all that this reads."""

from __future__ import annotations

import builtins
import gc
import importlib
import importlib.metadata
import importlib.util
import inspect
import os
import pkgutil
import re
import runpy
import sys
import types
from typing import Any

from yogadl.recipes._owners import is_installed, is_library_file, is_library_module
from yogadl.recipes._reads import Import, Read
from yogadl.recipes._sources import Source, SourceError, source_of
from yogadl.recipes._values import Walk, each, pairs, text

_UNSET = "unset"
_MISSING = object()
_PLAIN = frozenset((int, float, complex, bool, str, bytes, type(None)))
_CONTAINERS = frozenset((tuple, list, set, frozenset))
_MOST_PLAIN = 1000

_RUNS_TEXT = "runs code that is not there to be read"
_BY_NAME = "finds what it uses by a name that is not known before"
_FORBIDDEN: dict[int, tuple[str, str]] = {
    id(function): (name, why)
    for function, name, why in (
        (builtins.eval, "eval", _RUNS_TEXT),
        (builtins.exec, "exec", _RUNS_TEXT),
        (builtins.__import__, "__import__", _BY_NAME),
        (builtins.globals, "globals", _BY_NAME),
        (importlib.import_module, "importlib.import_module", _BY_NAME),
        (importlib.reload, "importlib.reload", _BY_NAME),
        (importlib.metadata.entry_points, "entry_points", _BY_NAME),
        (pkgutil.iter_modules, "pkgutil.iter_modules", _BY_NAME),
        (pkgutil.walk_packages, "pkgutil.walk_packages", _BY_NAME),
        (runpy.run_module, "runpy.run_module", _RUNS_TEXT),
        (runpy.run_path, "runpy.run_path", _RUNS_TEXT),
        (sys._getframe, "sys._getframe", _BY_NAME),
        (inspect.currentframe, "inspect.currentframe", _BY_NAME),
        (inspect.stack, "inspect.stack", _BY_NAME),
        (gc.get_objects, "gc.get_objects", _BY_NAME),
        (sys.modules, "sys.modules", _BY_NAME),
    )
}
_FORBIDDEN_NAMES = ("__subclasses__", "__globals__", "f_globals", "f_locals", "f_builtins")


# Which comprehensions are functions depends on the version of Python.
_COMPREHENSION = re.compile(r"<(?:list|dict|set)comp>\.(?:<locals>\.)?")


def name_of(function: Any) -> str:
    """The name of a function or class in its module, the same on every Python."""
    return _COMPREHENSION.sub("", function.__qualname__)


def label_of(function: Any) -> str:
    """A function or class for people."""
    return f"{function.__module__}.{name_of(function)}"


def source_text(function: types.FunctionType) -> str:
    """The source for people; empty if there is none."""
    try:
        return source_of(function).shown()
    except (SourceError, RecursionError):
        return ""


def own_digest_parts(function: types.FunctionType) -> list[str]:
    """What a function alone is, without what it reads; empty if that cannot be told."""
    try:
        return [source_of(function).form]
    except (SourceError, RecursionError):
        return []


def describe_function(walk: Walk, function: types.FunctionType) -> list[str]:
    """All that a function of the user's is.

    Raises:
        UndeterminedError: that cannot be told.
    """
    try:
        source = source_of(function)
    except SourceError as error:
        walk.refuse(f"a function whose code cannot be told: {error}")
    label, reads = label_of(function), source.reads
    walk.mention(reads.mentioned)
    for name in _FORBIDDEN_NAMES:
        if name in reads.mentioned and not walk.is_ignored(name):
            walk.refuse(f"code that uses {name}, which {_BY_NAME}", name)
    parts = [name_of(function), function.__name__, source.form]
    _import_all(walk, function, reads.imports)
    if reads.asserts or "__debug__" in reads.mentioned:
        parts.append(f"debug={__debug__}")
    parts += _defaults(walk, function, label)
    cells = cells_of(function)
    for name, value in cells.items():
        if not isinstance(value, types.ModuleType):
            parts.append(f"{name}={_closure(walk, function, name, label, value)}")
    parts += _attributes(walk, function)
    for read in reads.names:
        parts.append(f"{read}={follow(walk, function, cells, read)}")
    _describe_later(walk, function, source, cells)
    return parts


def _import_all(walk: Walk, function: types.FunctionType, imports: set[Import]) -> None:
    """Imports those of the user's modules that a function imports: they may change others."""
    for found in sorted(imports, key=str):
        name = _absolute(found, function.__globals__)
        if _is_imported(walk, name) and found.name:
            space = vars(sys.modules[name])
            if "__path__" in space and found.name not in space:
                _is_imported(walk, f"{name}.{found.name}")


def _is_imported(walk: Walk, name: str) -> bool:
    """Whether a module is imported, now if it is the user's."""
    if name in sys.modules:
        return True
    if not name or is_installed(name) is not False:
        return False
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    walk.begin_again()
    return True


def _absolute(found: Import, space: dict[str, Any]) -> str:
    """The name of the module of an import; empty if there is none."""
    if not found.level:
        return found.module
    package = space.get("__package__") or str(space.get("__name__", "")).rpartition(".")[0]
    try:
        return importlib.util.resolve_name("." * found.level + found.module, package)
    except ImportError:
        return ""


def _describe_later(
    walk: Walk, function: types.FunctionType, source: Source, cells: dict[str, Any]
) -> None:
    walk.later("module", lambda: str(function.__module__))
    walk.later("doc", lambda: inspect.cleandoc(str(function.__doc__)))
    walk.later("source", lambda: source.raw)
    walk.later(
        "annotations",
        lambda: ";".join(
            f"{read}={follow(walk, function, cells, read)}" for read in source.reads.annotated
        ),
    )


def cells_of(function: types.FunctionType) -> dict[str, Any]:
    """What a function closes over, by name."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            found[name] = _MISSING
    return found


def _closure(walk: Walk, owner: Any, name: str, label: str, value: Any) -> str:
    if value is _MISSING:
        return _UNSET
    if walk.is_ignored(f"{label}.{name}") or (
        walk.is_home(owner.__globals__) and walk.is_ignored(name)
    ):
        return "ignored"
    return walk.item("closure", owner, name, f"{label}.{name}", value)


def _defaults(walk: Walk, function: types.FunctionType, label: str) -> list[str]:
    code, found = function.__code__, dict[str, Any]()
    values = function.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount]
    found.update(zip(names[len(names) - len(values) :], values, strict=True))
    found.update(function.__kwdefaults__ or {})
    return [
        f"{name}:={walk.item('default', function, name, f'{label}.{name}', value)}"
        for name, value in found.items()
        if not walk.is_ignored(f"{label}.{name}")
        and not (walk.is_home(function.__globals__) and walk.is_ignored(name))
    ]


def _attributes(walk: Walk, function: types.FunctionType) -> list[str]:
    return [f".{name}={walk.inside(f'.{name}', it)}" for name, it in vars(function).items()]


def describe_wrapper(walk: Walk, function: types.FunctionType) -> list[str]:
    """A function that a library has made around something of the user's."""
    parts = [walk.library(function.__globals__.get("__name__", ""), function.__code__.co_name)]
    registry = vars(function).get("registry")
    if isinstance(registry, types.MappingProxyType) and "dispatch" in vars(function):
        # functools.singledispatch. The order of the registrations does not matter.
        return [*parts, *sorted(f"{walk.token(k)}:{walk.token(v)}" for k, v in registry.items())]
    wrapped = vars(function).get("__wrapped__")
    if isinstance(wrapped, types.FunctionType):
        # A library may look at them.
        walk.mention(["__annotations__"])
    for name, value in cells_of(function).items():
        parts.append(f"{name}={_closure(walk, function, name, label_of(function), value)}")
    parts.append(each(walk, function.__defaults__ or ()))
    parts.append(pairs(walk, (function.__kwdefaults__ or {}).items()))
    return [*parts, *_attributes(walk, function)]


# What a name stands for


def follow(walk: Walk, function: types.FunctionType, cells: dict[str, Any], read: Read) -> str:
    """What a function gets of a name that it reads."""
    space = function.__globals__
    if walk.is_home(space) and walk.is_ignored(read.root, str(read)):
        return "ignored"
    if read.imported is not None:
        return _follow_import(walk, space, read, read.imported)
    if read.root in cells:
        value = cells[read.root]
        # Others are described where closures are.
        if not isinstance(value, types.ModuleType):
            return "closure"
        return _follow_value(walk, function, read.root, value, read.chain, read)
    if read.root in space:
        name = space.get("__name__", "")
        return _follow_value(
            walk, space, read.root, space[read.root], read.chain, read, f"{name}.{read.root}"
        )
    value = vars(builtins).get(read.root, _MISSING)
    if value is _MISSING:
        return _mangled(walk, space, read.root)
    return _follow_value(walk, builtins, read.root, value, read.chain, read)


def _mangled(walk: Walk, space: dict[str, Any], name: str) -> str:
    """What a name with two underscores may stand for inside of a class, of whatever name."""
    if not name.startswith("__") or name.endswith("__"):
        return _UNSET
    found = sorted(it for it in space if it.endswith(name) and it[:1] == "_" and it != name)
    module = space.get("__name__", "")
    return _UNSET + "".join(
        f",{it}={walk.item('global', space, it, f'{module}.{it}', space[it])}" for it in found
    )


def _follow_import(walk: Walk, space: dict[str, Any], read: Read, found: Import) -> str:
    name, chain = _absolute(found, space), read.chain
    if not name:
        return _UNSET
    if found.name:
        chain = (found.name, *chain)
    installed = is_installed(name)
    if installed is None:
        return _UNSET
    if installed:
        # It need not be imported yet, and is the same when it is.
        module = sys.modules.get(name)
        if module is not None:
            return _follow_library(walk, module, chain, read, is_imported_here=True)
        return walk.library(name, ".".join(chain))
    try:
        value = importlib.import_module(name)
    except ImportError:
        return _UNSET
    return _follow_value(walk, None, name, value, chain, read)


def _follow_value(
    walk: Walk,
    owner: object,
    name: str,
    value: Any,
    chain: tuple[str, ...],
    read: Read,
    label: str = "",
) -> str:
    """What a name of some owner, and the attributes that follow it, are."""
    while isinstance(value, types.ModuleType):
        if is_library_module(value):
            return _follow_library(walk, value, chain, read)
        if not chain or chain[0] == "__dict__":
            walk.refuse_module(value, str(read))  # type: ignore[attr-defined]
        owner, name, chain = vars(value), chain[0], chain[1:]
        label = f"{value.__name__}.{name}"
        if walk.is_ignored(label):
            return "ignored"
        found = vars(value).get(name, _MISSING)
        if found is _MISSING:
            found = _submodule(value, name)
        if found is _MISSING:
            made = vars(value).get("__getattr__")
            if made is None:
                return _mangled(walk, vars(value), name)
            return f"{name} of {walk.token(made)}"
        value = found
    if label and walk.is_ignored(label):
        return "ignored"
    _refuse_forbidden(walk, value)
    special = _environment(walk, value, chain, read.constant)
    if special:
        return special
    return walk.item("global", owner, name, label or name, value)


def _submodule(package: types.ModuleType, name: str) -> Any:
    """A module of the user's that is imported when it is used."""
    if "__path__" not in vars(package):
        return _MISSING
    try:
        return importlib.import_module(f"{package.__name__}.{name}")
    except ImportError:
        return _MISSING


def _follow_library(
    walk: Walk,
    module: types.ModuleType,
    chain: tuple[str, ...],
    read: Read,
    is_imported_here: bool = False,
) -> str:
    """What is read of a library: as it is written, since not all of it may be imported."""
    found = walk.library(module.__name__, ".".join(chain))
    value: Any = module
    for number, name in enumerate(chain):
        if not isinstance(value, types.ModuleType):
            break
        if not is_library_module(value):
            return _follow_value(walk, None, name, value, chain[number:], read)
        value = vars(value).get(name, _MISSING)
        _refuse_forbidden(walk, value)
        special = _environment(walk, value, chain[number + 1 :], read.constant)
        if special:
            return special
    if isinstance(value, types.FunctionType) and not is_library_file(value.__code__.co_filename):
        return f"{found} is {walk.reference(value)}"
    if isinstance(value, type):
        return f"{found} is {walk.reference(value)}"
    if not is_imported_here and _is_plain(value):
        return walk.item(
            "constant", module, str(read), f"{module.__name__}.{'.'.join(chain)}", value
        )
    return found


def _is_plain(value: Any, left: int = 3) -> bool:
    """Whether a value is of Python's own types through and through, and not large."""
    kind = type(value)
    if kind in _PLAIN:
        return True
    if left == 0 or (kind not in _CONTAINERS and kind is not dict) or len(value) > _MOST_PLAIN:
        return False
    items = [*value.keys(), *value.values()] if kind is dict else value
    return all(_is_plain(item, left - 1) for item in items)


def _refuse_forbidden(walk: Walk, value: Any) -> None:
    found = _FORBIDDEN.get(id(value))
    if found is not None and not walk.is_ignored(found[0]):
        walk.refuse(f"code that uses {found[0]}, which {found[1]}", found[0])


def _environment(walk: Walk, value: Any, chain: tuple[str, ...], constant: str | None) -> str:
    """A variable of the environment, if that is what is read."""
    if value is os.getenv and not chain:
        is_one = True
    elif value is os.environ:
        is_one = chain in ((), ("get",))
    else:
        return ""
    if not is_one or constant is None:
        if walk.is_ignored("os.environ"):
            return "ignored"
        walk.refuse("the whole environment, of which it cannot be told what is used", "os.environ")
    if walk.is_ignored(constant):
        return "ignored"
    return walk.item("environment", os.environ, constant, constant, os.environ.get(constant))


def plain_text(value: str) -> str:
    """A string as part of what is described."""
    return text(value)
