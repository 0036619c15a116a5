"""What a function is: its code, and all that this reads."""

from __future__ import annotations

import builtins
import dataclasses
import functools
import inspect
import re
import sys
import types
import typing
from collections.abc import Iterable
from typing import Any

from yogadl.errors import UndeterminedError
from yogadl.recipes._annotations import text_of
from yogadl.recipes._imports import import_all
from yogadl.recipes._libraries import among_others
from yogadl.recipes._lookups import looks_up_by_another_name, named_in_own
from yogadl.recipes._names import follow
from yogadl.recipes._objects import OF_DISPATCHERS, added, attributes_of
from yogadl.recipes._owners import is_library, is_library_file, is_library_module, space_of
from yogadl.recipes._protocol import Walk, each, pairs
from yogadl.recipes._reads import Read, Reads
from yogadl.recipes._scopes import absolute, package_of
from yogadl.recipes._sources import Source, SourceError, source_of
from yogadl.recipes._special import CACHED, HINTS, LEFT, MARKS
from yogadl.recipes._users import holds_users, is_dispatcher

_UNSET = "unset"
_MISSING = object()
_WRAPPED = frozenset(("__wrapped__",))
_OF_DISPATCHERS = _WRAPPED | OF_DISPATCHERS

# Which comprehensions are functions depends on the version of Python.
_COMPREHENSION = re.compile(r"<(?:list|dict|set)comp>\.(?:<locals>\.)?")


def name_of(function: Any) -> str:
    """The name of a function or class in its module, the same on every Python."""
    return _COMPREHENSION.sub("", function.__qualname__)


def label_of(function: Any) -> str:
    """A function or class for people."""
    # What is compiled of a text may be of none.
    return ".".join(filter(None, (function.__module__, name_of(function))))


def unwrapped(function: Any) -> Any:
    """What decorators have wrapped, as they tell, whatever objects do when they are asked."""
    inner, met = function, set[int]()
    while (wrapped := _wrapped_by(inner)) is not None:
        if id(inner) in met:
            # One says that it wraps itself.
            return function
        met.add(id(inner))
        inner = wrapped
    return inner


def _wrapped_by(function: Any) -> Any:
    if type(function) in (staticmethod, classmethod):
        return function.__func__
    return attributes_of(function).get("__wrapped__")


def home_of(function: Any) -> tuple[str, dict[str, Any]]:
    """The name of what a call runs, and the globals of that."""
    while isinstance(function, functools.partial):
        function = function.func
    inner = unwrapped(function.__func__ if type(function) is types.MethodType else function)
    if isinstance(inner, types.FunctionType):
        return inner.__qualname__, inner.__globals__
    kind = inner if issubclass(type(inner), type) else type(inner)
    own = inner.__qualname__ if type(inner) is types.BuiltinFunctionType else kind.__qualname__
    return own, space_of(kind.__module__) or vars(builtins)


def place_of(value: Any) -> tuple[str, int]:
    """The same for equal values as far as names and lines of code tell."""
    if issubclass(type(value), types.FunctionType):
        return value.__qualname__, value.__code__.co_firstlineno
    return (value.__qualname__, 0) if issubclass(type(value), type) else ("", 0)


def source_text(function: types.FunctionType) -> str:
    """The source for people; empty if there is none."""
    try:
        return source_of(function).shown
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
    parts = [name_of(function), function.__name__, source.form]
    read = {it.imported for it in reads.names}
    parts += import_all(walk, function.__globals__, reads.imports, read)
    if reads.asserts or "__debug__" in reads.mentioned:
        parts.append(f"debug={__debug__}")
    parts += _defaults(walk, function, label)
    cells = cells_of(function)
    for name, value in cells.items():
        if not issubclass(type(value), types.ModuleType):
            parts.append(f"{name}={_closure(walk, function, name, label, value)}")
    # One that several share may be given another value by any of them.
    parts += [again for cell in function.__closure__ or () if (again := walk.again(cell))]
    parts += _attributes(walk, function)
    walk.texts.update(reads.texts)
    is_hidden = looks_up_by_another_name(function, cells, reads)
    if reads.looks_up_given or is_hidden:
        walk.looks_up(function, cells)
    others = [it for it in reads.assumed if it.root in function.__globals__ or it.root in cells]
    named = named_in_own(function, reads) if reads.looks_up or is_hidden else ()
    passed = (one for it in reads.passed for one in _read_of(function, cells, reads, it))
    for it in (*reads.names, *others, *named, *passed):
        parts.append(f"{it}={follow(walk, function, cells, it)}")
    for name in sorted(reads.writes):
        walk.writes(function.__globals__, name)
    if reads.inner_hints and not walk.leaves_hints:
        in_texts = (it for it in reads.inner_hints if it not in reads.annotated)
        parts += _hints(walk, function, cells, in_texts)
    handed = any(type(_value_at(function, cells, it)) is types.FunctionType for it in reads.handed)
    if reads.inner_hints or handed:
        walk.later(HINTS, lambda: ",".join(_hints_of_handed(walk, function, cells, reads)))
    _describe_later(walk, function, source, cells)
    return parts


def _read_of(
    function: types.FunctionType, cells: dict[str, Any], reads: Reads, passed: Read
) -> list[Read]:
    """What a function may read of what it imports for others: of a module of the user's, all that
    has a name which the function's code or texts have, too."""
    value = _value_at(function, cells, passed)
    if not issubclass(type(value), types.ModuleType) or is_library_module(value):
        return [passed]
    names = sorted(it for it in list(vars(value)) if it[:2] != "__")
    found = [it for it in names if it in reads.mentioned or any(it in one for one in reads.texts)]
    return [dataclasses.replace(passed, chain=(*passed.chain, it)) for it in found]


def _hints_of_handed(
    walk: Walk, function: types.FunctionType, cells: dict[str, Any], reads: Reads
) -> list[str]:
    """What the annotations name of functions that this hands to others, which may go by them."""
    found = _hints(walk, function, cells, reads.inner_hints)
    for read in reads.handed:
        value = _function_of(_value_at(function, cells, read))
        names = (read.root, str(read)) if walk.is_home(function.__globals__) else ()
        if value is not None and not walk.is_ignored(label_of(value), *names):
            try:
                found += _hints(walk, value, cells_of(value), source_of(value).reads.hints)
            except (SourceError, RecursionError):
                # It is refused where it is described.
                continue
    return found


def _hints(
    walk: Walk, function: types.FunctionType, cells: dict[str, Any], hints: Iterable[Read]
) -> list[str]:
    """Some names in annotations, but for those that Python has for everybody."""
    found = []
    for read in hints:
        value = _value_at(function, cells, read)
        # Which of those of typing are classes depends on the version of Python.
        if value is not _MISSING and value is not vars(typing).get(str(read).rpartition(".")[2]):
            try:
                found.append(f"hint {read}={follow(walk, function, cells, read)}")
            except UndeterminedError:
                continue
    return found


def _value_at(function: types.FunctionType, cells: dict[str, Any], read: Read) -> Any:
    """What a function gets of a name, as far as that is found by looking into modules only."""
    found = cells.get(read.root, _MISSING)
    if found is _MISSING:
        found = function.__globals__.get(read.root, _MISSING)
    if read.imported is not None:
        module = sys.modules.get(absolute(read.imported, package_of(function.__globals__)))
        found = getattr(module, "__dict__", {}).get(read.imported.name, module)
    for name in read.chain:
        if not issubclass(type(found), types.ModuleType):
            break
        found = vars(found).get(name, _MISSING)
    return found


def _function_of(value: Any) -> types.FunctionType | None:
    """The function of the user's that this is, without what wraps it; else ``None``."""
    inner: Any = unwrapped(value) if type(value) is types.FunctionType else None
    is_function = type(inner) is types.FunctionType
    return inner if is_function and not is_library_file(inner.__code__.co_filename) else None


def _describe_later(
    walk: Walk, function: types.FunctionType, source: Source, cells: dict[str, Any]
) -> None:
    walk.later("module", lambda: str(function.__module__))
    walk.later("doc", lambda: f"{inspect.cleandoc(str(function.__doc__))}{source.inner_docs}")
    walk.later("source", lambda: source.raw)
    walk.later("marks", lambda: str(sorted(MARKS & vars(function).keys())))
    walk.later("lines", lambda: str(function.__code__.co_firstlineno))
    walk.later(
        "annotations",
        lambda: (
            _annotations(walk, function)
            + ";".join(
                f"{read}={follow(walk, function, cells, read)}" for read in source.reads.annotated
            )
        ),
    )


def _annotations(walk: Walk, function: types.FunctionType) -> str:
    try:
        found = inspect.get_annotations(function)
    except NameError:
        # From Python 3.14 on, they may name what is not there.
        return ""
    return ",".join(f"{name}:{text_of(walk, function, it)};" for name, it in found.items())


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


def _attributes(
    walk: Walk, function: types.FunctionType, besides: frozenset[str] = frozenset()
) -> list[str]:
    return [
        f".{name}={walk.inside(f'.{name}', it)}"
        # What wraps a cached function has copied the attributes of that.
        for name, it in added(function).items()
        if name != CACHED and name not in MARKS and name not in LEFT and name not in besides
    ]


def _place_of_class(kind: type) -> tuple[bool, str, str]:
    """Puts classes in an order: those of libraries, by their modules, and the user's."""
    is_users = not is_library(kind.__module__)
    return is_users, "" if is_users else kind.__module__, kind.__qualname__


def describe_wrapper(walk: Walk, function: types.FunctionType) -> list[str]:
    """A function that a library has made around something of the user's."""
    home = walk.library(function.__globals__.get("__name__", ""), function.__code__.co_name)
    parts = [f"{home}{among_others(function)}"]
    if is_dispatcher(function):
        registry = vars(function)["registry"]
        # The order of the registrations does not matter.
        is_own = holds_users(registry.get(object))
        found = [it for it in registry.items() if is_own or any(map(holds_users, it))]
        # Functions of one name are told apart by which is met first. What the user's modules are
        # called depends on how they are run.
        found.sort(key=lambda it: _place_of_class(it[0]))
        parts += sorted(f"{walk.token(k)}:{walk.token(v)}" for k, v in found)
        return [*parts, *_attributes(walk, function, _OF_DISPATCHERS)]
    wrapped, cells = vars(function).get("__wrapped__"), cells_of(function)
    if any(issubclass(type(it), types.FunctionType) for it in (wrapped, *cells.values())):
        # A library may look at them.
        walk.mention(["__annotations__"])
    for name, value in cells.items():
        parts.append(f"{name}={_closure(walk, function, name, label_of(function), value)}")
    parts.append(each(walk, function.__defaults__ or ()))
    parts.append(pairs(walk, (function.__kwdefaults__ or {}).items()))
    # Which of Python's own wrappers also say what they wrap depends on the version.
    is_told = any(value is wrapped for value in cells.values())
    return [*parts, *_attributes(walk, function, _WRAPPED if is_told else frozenset())]
