"""What values are, as text that is the same for the same values in every process.

A rule takes the walk and a value, and returns text that no other value of any type has.
"""

from __future__ import annotations

import array
import builtins
import collections
import datetime
import decimal
import enum
import fractions
import functools
import logging
import marshal
import operator
import pathlib
import random
import re
import struct
import types
import typing
import uuid
import zoneinfo
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import xxhash

# What is longer is told by a digest.
_LONGEST = 200
_MANY = 64
_FLAT = frozenset((int, float, bool, type(None), str, bytes))
_NUMBERS = frozenset((int, float, bool))


class Walk(Protocol):
    """What rules need of the walk that they are used by."""

    def token(self, value: Any) -> str:
        """A value as text.

        Raises:
            UndeterminedError: it cannot be told what it is.
        """

    def inside(self, step: str, value: Any) -> str:
        """The same of a value inside of another; ``step`` says where, for errors."""

    def again(self, value: Any) -> str:
        """What was met before, so that what is shared is told from what is only equal, and rings
        come to an end; empty if it is new."""

    def alone(self, values: Iterable[Any]) -> list[str]:
        """Values that have no order, sorted."""

    def reference(self, value: Any) -> str:
        """A function or class, that has an item of its own."""

    def library(self, module: str, name: str) -> str:
        """Something of a library, whose version counts from now on."""

    def declared(self, path: pathlib.PurePath) -> str:
        """What a path is if it is a declared input; else empty."""

    def refuse(self, what: str, name: str = "") -> typing.NoReturn:
        """Raises the error that says that a value cannot be told, and where that was met.

        Args:
            what: it is.
            name: by which it can be ignored, if that is not of where it was met.
        """

    def is_ignored(self, *names: str) -> bool:
        """Whether one of these is not to count."""

    def item(self, kind: str, owner: object, name: str, label: str, value: Any) -> str:
        """A value that has a name.

        Args:
            kind: see ``KINDS``.
            owner: what it is the name in.
            name: in that.
            label: for people.
            value: that it has.
        """

    def is_home(self, space: dict[str, Any]) -> bool:
        """Whether these are the globals of the function that the walk began with: of its names,
        those of modules need not be given."""

    def begin_again(self) -> None:
        """Has all of it described once more: a module was imported, which may have changed it."""

    def mention(self, names: Iterable[str]) -> None:
        """Takes note of names that code uses, which may decide what counts."""

    def later(self, flag: str, make: Callable[[], str]) -> None:
        """What counts, too, of what is described now, if code asks for it; see ``FLAGS``."""


Rule = Callable[[Walk, Any], str]


def digest(data: Any) -> str:
    """XXH3-128 of some bytes."""
    return xxhash.xxh3_128_hexdigest(data)


def text(value: str) -> str:
    """A string, by a digest if it is long."""
    if len(value) <= _LONGEST:
        return f"s{value!a}"
    return f"s{len(value)}#{digest(value.encode('utf-8', 'surrogatepass'))}"


def _bytes(_walk: Walk, value: Any) -> str:
    if len(value) <= _LONGEST:
        return f"b{bytes(value).hex()}"
    return f"b{len(value)}#{digest(value)}"


def _float(_walk: Walk, value: float) -> str:
    return f"f{struct.pack('>d', value).hex()}"


def _complex(_walk: Walk, value: complex) -> str:
    return f"c{struct.pack('>dd', value.real, value.imag).hex()}"


def _flat(values: Any) -> str:
    """Many numbers and strings at once; empty if there is anything else."""
    if len(values) <= _MANY:
        return ""
    kinds = set(map(type, values))
    if not kinds <= _FLAT:
        return ""
    # Strings would be marshalled as they are kept, and floats be rounded by version 0.
    version = 2 if kinds <= _NUMBERS else 0
    if version == 0 and float in kinds:
        return ""
    return f"{len(values)}#{digest(marshal.dumps(values, version))}"


def each(walk: Walk, values: Iterable[Any]) -> str:
    """Values in their order."""
    return ",".join(walk.inside(f"[{n}]", value) for n, value in enumerate(values))


def pairs(walk: Walk, items: Iterable[tuple[Any, Any]]) -> str:
    """Keys and values in their order, which may matter."""
    found = []
    for key, value in items:
        shown = f"[{key!r:.40}]" if type(key) in (str, int) else "[…]"
        found.append(f"{walk.inside(shown, key)}:{walk.inside(shown, value)}")
    return ",".join(found)


def _tuple(walk: Walk, value: tuple[Any, ...]) -> str:
    return f"({_flat(value) or each(walk, value)})"


def _list(walk: Walk, value: list[Any]) -> str:
    return walk.again(value) or f"[{_flat(value) or each(walk, value)}]"


def _dict(walk: Walk, value: dict[Any, Any]) -> str:
    return walk.again(value) or f"{{{pairs(walk, value.items())}}}"


def _set(walk: Walk, value: Any) -> str:
    if type(value) is set and (again := walk.again(value)):
        return again
    return f"{type(value).__name__}{{{','.join(walk.alone(value))}}}"


def _range(_walk: Walk, value: range) -> str:
    return f"range({value.start},{value.stop},{value.step})"


def _slice(walk: Walk, value: slice) -> str:
    return f"slice({each(walk, (value.start, value.stop, value.step))})"


def _named(_walk: Walk, value: Any) -> str:
    """By the type's name, and what Python writes."""
    return f"{type(value).__module__}.{type(value).__qualname__}({text(repr(value))})"


def _datetime(walk: Walk, value: Any) -> str:
    zone = walk.inside(".tzinfo", value.tzinfo)
    bare = value.replace(tzinfo=None)
    return f"{type(value).__name__}({bare.isoformat()},{value.fold},{zone})"


def _zone(walk: Walk, value: zoneinfo.ZoneInfo) -> str:
    if value.key is None:
        walk.refuse("a time zone without a key")
    return f"zone({text(value.key)})"


def _path(walk: Walk, value: pathlib.PurePath) -> str:
    return walk.declared(value) or f"path({text(str(value))})"


def _pattern(walk: Walk, value: re.Pattern[Any]) -> str:
    return f"pattern({walk.token(value.pattern)},{int(value.flags)})"


def _partial(walk: Walk, value: functools.partial[Any]) -> str:
    if again := walk.again(value):
        return again
    func = walk.inside(".func", value.func)
    args = walk.inside(".args", value.args)
    return f"partial({func},{args},{walk.inside('.keywords', value.keywords)})"


def _cached(walk: Walk, value: Any) -> str:
    # What it has kept is what the function would return.
    return f"cached({walk.inside('.__wrapped__', value.__wrapped__)})"


def _getter(walk: Walk, value: Any) -> str:
    _, *arguments = value.__reduce__()
    return f"{type(value).__name__}({each(walk, arguments)})"


def _method(walk: Walk, value: types.MethodType) -> str:
    own = walk.inside(".__self__", value.__self__)
    return f"method({walk.inside('.__func__', value.__func__)},{own})"


def _deque(walk: Walk, value: collections.deque[Any]) -> str:
    return walk.again(value) or f"deque({value.maxlen},{each(walk, value)})"


def _ordered(walk: Walk, value: Mapping[Any, Any]) -> str:
    return walk.again(value) or f"{type(value).__name__}({pairs(walk, value.items())})"


def _defaultdict(walk: Walk, value: collections.defaultdict[Any, Any]) -> str:
    if again := walk.again(value):
        return again
    made = walk.inside(".default_factory", value.default_factory)
    return f"defaultdict({made},{pairs(walk, value.items())})"


def _proxy(walk: Walk, value: types.MappingProxyType[Any, Any]) -> str:
    return f"proxy({pairs(walk, value.items())})"


def _namespace(walk: Walk, value: types.SimpleNamespace) -> str:
    return walk.again(value) or f"namespace({pairs(walk, vars(value).items())})"


def _array(walk: Walk, value: array.array[Any]) -> str:
    return walk.again(value) or f"array({value.typecode},{digest(value.tobytes())},{len(value)})"


def _bytearray(walk: Walk, value: bytearray) -> str:
    return walk.again(value) or f"bytearray({_bytes(walk, value)})"


def _memory(_walk: Walk, value: memoryview) -> str:
    return f"memory({value.format},{value.shape},{digest(value.tobytes())})"


def _random(walk: Walk, value: random.Random) -> str:
    return walk.again(value) or f"random({walk.token(value.getstate())})"


def _dispatching(walk: Walk, value: functools.singledispatchmethod[Any]) -> str:
    # Python 3.13 keeps what it has found in it.
    return f"singledispatchmethod({each(walk, (value.dispatcher, value.func))})"


def _typing(walk: Walk, value: Any) -> str:
    """What type hints are made of."""
    origin = typing.get_origin(value)
    if origin is None:
        return f"typing({text(re.sub(r' at 0x[0-9a-f]+', '', repr(value)))})"
    return f"typing({walk.token(origin)},{each(walk, typing.get_args(value))})"


def _wrapper(walk: Walk, value: Any) -> str:
    """A ``staticmethod`` or ``classmethod``."""
    return f"{type(value).__name__}({walk.token(value.__func__)})"


def _property(walk: Walk, value: property) -> str:
    return f"property({each(walk, (value.fget, value.fset, value.fdel))})"


def _cached_property(walk: Walk, value: Any) -> str:
    # Before Python 3.12, it has a lock.
    return f"cached_property({walk.token(value.func)})"


def enum_member(walk: Walk, value: enum.Enum) -> str:
    """A member of an enumeration, by its name."""
    if (isinstance(value, enum.Flag) and value.name is None) or "|" in str(value.name):
        return f"enum({walk.token(type(value))},{walk.token(value.value)})"
    return f"enum({walk.token(type(value))}.{value.name})"


_CachedProperty: Any = vars(functools)["cached_property"]
_LRU_CACHE = type(functools.lru_cache(maxsize=1)(len))

EXACT: dict[type, Rule] = {
    type(None): lambda _walk, _value: "None",
    bool: lambda _walk, value: str(value),
    int: lambda _walk, value: f"i{value:#x}",
    float: _float,
    complex: _complex,
    str: lambda _walk, value: text(value),
    bytes: _bytes,
    bytearray: _bytearray,
    memoryview: _memory,
    tuple: _tuple,
    list: _list,
    dict: _dict,
    set: _set,
    frozenset: _set,
    range: _range,
    slice: _slice,
    type(...): lambda _walk, _value: "...",
    type(NotImplemented): lambda _walk, _value: "NotImplemented",
    object: lambda walk, value: walk.again(value) or "object",
    datetime.date: _named,
    datetime.timedelta: _named,
    datetime.timezone: _named,
    datetime.datetime: _datetime,
    datetime.time: _datetime,
    zoneinfo.ZoneInfo: _zone,
    decimal.Decimal: _named,
    fractions.Fraction: _named,
    uuid.UUID: _named,
    re.Pattern: _pattern,
    functools.partial: _partial,
    _LRU_CACHE: _cached,
    operator.itemgetter: _getter,
    operator.attrgetter: _getter,
    operator.methodcaller: _getter,
    types.MethodType: _method,
    collections.deque: _deque,
    collections.OrderedDict: _ordered,
    collections.Counter: _ordered,
    collections.defaultdict: _defaultdict,
    types.MappingProxyType: _proxy,
    types.SimpleNamespace: _namespace,
    array.array: _array,
    random.Random: _random,
    staticmethod: _wrapper,
    classmethod: _wrapper,
    property: _property,
    _CachedProperty: _cached_property,
    functools.singledispatchmethod: _dispatching,
    types.GenericAlias: _typing,
    types.UnionType: _typing,
    typing.TypeVar: _typing,
    typing.ParamSpec: _typing,
    # What is logged is in no record.
    logging.Logger: lambda _walk, _value: "logger",
    logging.RootLogger: lambda _walk, _value: "logger",
}

_DERIVED: tuple[tuple[type, Rule], ...] = (
    (enum.Enum, enum_member),
    (pathlib.PurePath, _path),
    (logging.Logger, lambda _walk, _value: "logger"),
)


def _arguments_of(value: BaseException) -> tuple[Any, ...]:
    return value.args


_CONTENTS: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (str, str.__str__),
    (bytes, lambda value: bytes(memoryview(value))),
    (bool, bool),
    (int, int.__index__),
    (float, float.__float__),
    (complex, lambda value: complex(value.real, value.imag)),
    (tuple, lambda value: tuple(tuple.__iter__(value))),
    (list, lambda value: tuple(list.__iter__(value))),
    (dict, lambda value: tuple(dict.items(value))),
    (frozenset, lambda value: frozenset(frozenset.__iter__(value))),
    (set, lambda value: frozenset(set.__iter__(value))),
    (bytearray, lambda value: bytes(memoryview(value))),
    (BaseException, _arguments_of),
)

OPENING: dict[str, str] = {
    "lock": "a lock",
    "RLock": "a lock",
    "generator": "a generator",
    "coroutine": "a coroutine",
    "async_generator": "a generator",
    "TextIOWrapper": "an open file",
    "BufferedReader": "an open file",
    "BufferedWriter": "an open file",
    "BufferedRandom": "an open file",
    "FileIO": "an open file",
    "socket": "a socket",
    "Thread": "a thread",
    "_Environ": "the whole environment",
}


def derived_rule(value: Any) -> Rule | None:
    """The rule of a type and of what derives from it."""
    for kind, rule in _DERIVED:
        if isinstance(value, kind):
            return rule
    if type(value).__module__ == "typing":
        return _typing
    return None


def contents(value: Any) -> Any:
    """What an object has as a string, a list and so on that it is, too; ``None`` if it is none."""
    for kind, take in _CONTENTS:
        if isinstance(value, kind):
            return take(value)
    return None


def _attributes(value: Any) -> dict[str, Any]:
    """The ``__dict__`` of an object, whatever its class does when it is asked for attributes."""
    for kind in type(value).__mro__:
        found = vars(kind).get("__dict__")
        if isinstance(found, types.GetSetDescriptorType):
            kept: dict[str, Any] = found.__get__(value)
            return kept
    return {}


def kept(value: Any) -> Iterator[tuple[str, Any]]:
    """The attributes that an object has in its ``__dict__`` and its slots."""
    yield from _attributes(value).items()
    for kind in type(value).__mro__:
        for name, slot in vars(kind).items():
            if isinstance(slot, types.MemberDescriptorType) and name != "__dict__":
                try:
                    yield name, slot.__get__(value)
                except AttributeError:
                    continue


def has_hidden_state(kind: type) -> bool:
    """Whether objects of a class have more than their ``__dict__``, slots and contents."""
    base = next((one for one, _ in _CONTENTS if issubclass(kind, one)), object)
    expected = base.__basicsize__
    if kind.__dictoffset__ not in (0, -1) and not base.__dictoffset__:
        expected += 8
    if kind.__weakrefoffset__ > 0 and not base.__weakrefoffset__:
        expected += 8
    for one in kind.__mro__:
        # Of a class that was written in C, descriptors of members are no slots.
        slots = vars(one).get("__slots__", ())
        names = (slots,) if isinstance(slots, str) else tuple(slots)
        expected += 8 * sum(name not in ("__dict__", "__weakref__") for name in names)
    return kind.__basicsize__ > expected


def told(value: Any) -> str:
    """What an object is, for errors."""
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix(f"{builtins.__name__}.")
    return f"{OPENING[kind.__name__]} ({name})" if kind.__name__ in OPENING else f"a {name}"
