"""What values are, as text that is the same for the same values in every process.

A rule takes the walk and a value, and returns text that no other value of any type has.
"""

from __future__ import annotations

import array
import collections
import collections.abc
import datetime
import decimal
import enum
import fractions
import functools
import gc
import logging
import marshal
import operator
import pathlib
import random
import re
import struct
import time
import types
import typing
import uuid
import zoneinfo
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from yogadl.recipes._arrays import address_of, meaning_of, meet_texts, shared_by
from yogadl.recipes._hints import hint_rule
from yogadl.recipes._objects import added, attributes_of
from yogadl.recipes._protocol import LONGEST, Rule, Walk, digest, each, pairs, text
from yogadl.recipes._users import is_of_library

_MANY = 64
_FLAT = frozenset((int, float, bool, type(None), str, bytes))
_NUMBERS = frozenset((int, float, bool))


def _text(walk: Walk, value: str) -> str:
    meet_texts(walk, (value,))
    return text(value)


def _bytes(_walk: Walk, value: Any) -> str:
    if len(value) <= LONGEST:
        return f"b{bytes(value).hex()}"
    return f"b{len(value)}#{digest(value)}"


def _float(_walk: Walk, value: float) -> str:
    return f"f{struct.pack('>d', value).hex()}"


def _complex(_walk: Walk, value: complex) -> str:
    return f"c{struct.pack('>dd', value.real, value.imag).hex()}"


def _flat(walk: Walk, values: Any) -> str:
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
    if str in kinds:
        meet_texts(walk, [it for it in values if type(it) is str])
    return f"{len(values)}#{digest(marshal.dumps(values, version))}"


def _tuple(walk: Walk, value: tuple[Any, ...]) -> str:
    return f"({_flat(walk, value) or each(walk, value)})"


def _list(walk: Walk, value: list[Any]) -> str:
    return walk.again(value) or f"[{_flat(walk, value) or each(walk, value)}]"


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


def _uuid(walk: Walk, value: uuid.UUID) -> str:
    named = _named(walk, value)
    # Whether the same was made twice is hardly ever known.
    return named if value.is_safe is uuid.SafeUUID.unknown else f"{named}{value.is_safe.name}"


def _datetime(walk: Walk, value: Any) -> str:
    zone = walk.inside(".tzinfo", value.tzinfo)
    bare = value.replace(tzinfo=None)
    return f"{type(value).__name__}({bare.isoformat()},{value.fold},{zone})"


def _zone(walk: Walk, value: zoneinfo.ZoneInfo) -> str:
    if value.key is None:
        walk.refuse("a time zone without a key")
    return f"zone({text(value.key)})"


def _path(walk: Walk, value: pathlib.PurePath) -> str:
    if declared := walk.declared(value):
        return declared
    kind = type(value)
    if not is_of_library(kind):
        more = pairs(walk, attributes_of(value).items())
        return f"path({text(str(value))},{walk.token(kind)},{more})"
    # Those that are more than text are of the machine's own kind.
    name = "path" if isinstance(value, pathlib.Path) else kind.__name__
    return f"{name}({text(str(value))})"


def _pattern(walk: Walk, value: re.Pattern[Any]) -> str:
    return f"pattern({walk.token(value.pattern)},{int(value.flags)})"


def _partial(walk: Walk, value: functools.partial[Any]) -> str:
    if again := walk.again(value):
        return again
    func = walk.inside(".func", value.func)
    args = walk.inside(".args", value.args)
    keywords = walk.inside(".keywords", value.keywords)
    return f"partial({func},{args},{keywords},{pairs(walk, added(value).items())})"


def _cached(walk: Walk, value: Any) -> str:
    # What it has kept is what the function would return.
    more = pairs(walk, ((name, it) for name, it in vars(value).items() if name not in _OF_WRAPPERS))
    options = walk.token(value.cache_parameters())
    return f"cached({walk.inside('.__wrapped__', value.__wrapped__)},{options},{more})"


_OF_WRAPPERS = (*functools.WRAPPER_ASSIGNMENTS, "__wrapped__", "cache_parameters")


def _getter(walk: Walk, value: Any) -> str:
    _, *arguments = value.__reduce__()
    # What it gets by name, code gets.
    walk.mention([it for part in arguments[0] if isinstance(part, str) for it in part.split(".")])
    return f"{type(value).__name__}({each(walk, arguments)})"


def _method(walk: Walk, value: types.MethodType) -> str:
    own = walk.inside(".__self__", value.__self__)
    return f"method({walk.inside('.__func__', value.__func__)},{own})"


def _deque(walk: Walk, value: collections.deque[Any]) -> str:
    return walk.again(value) or f"deque({value.maxlen},{each(walk, value)})"


def _ordered(walk: Walk, value: Mapping[Any, Any]) -> str:
    if again := walk.again(value):
        return again
    return f"{type(value).__name__}({pairs(walk, value.items())}){_added(walk, value)}"


def _added(walk: Walk, value: Any, own: Collection[str] = ()) -> str:
    """What the user has given an object of a class of Python's; empty if it is nothing.

    Args:
        walk: that this is of.
        value: the object.
        own: attributes that all objects of the class have.
    """
    found = [it for it in added(value).items() if it[0] not in own]
    return f"+{pairs(walk, found)}" if found else ""


def _defaultdict(walk: Walk, value: collections.defaultdict[Any, Any]) -> str:
    if again := walk.again(value):
        return again
    made = walk.inside(".default_factory", value.default_factory)
    return f"defaultdict({made},{pairs(walk, value.items())})"


def _proxy(walk: Walk, value: types.MappingProxyType[Any, Any]) -> str:
    # Who has the dict itself may change it.
    return f"proxy({each(walk, gc.get_referents(value))})"


def _namespace(walk: Walk, value: types.SimpleNamespace) -> str:
    return walk.again(value) or f"namespace({pairs(walk, vars(value).items())})"


def _array(walk: Walk, value: array.array[Any]) -> str:
    if again := walk.again(value):
        return again
    place = value.buffer_info()[0]
    shared = walk.memory(value, place, place, "") if value else ""
    return f"array({value.typecode},{digest(value.tobytes())},{len(value)}{shared})"


def _bytearray(walk: Walk, value: bytearray) -> str:
    if again := walk.again(value):
        return again
    place = address_of(memoryview(value)) if value else 0
    shared = walk.memory(value, place, place, "") if value else ""
    return f"bytearray({_bytes(walk, value)}{shared})"


def _memory(walk: Walk, value: memoryview) -> str:
    try:
        seen = np.asarray(value)
    except (TypeError, ValueError):
        walk.refuse(f"a memoryview of the format {value.format!r}, which cannot be read")
    return (
        f"memory({value.format},{value.shape},{digest(meaning_of(seen))}{shared_by(walk, value)})"
    )


def _random(walk: Walk, value: random.Random) -> str:
    if again := walk.again(value):
        return again
    return f"random({walk.token(value.getstate())}){_added(walk, value, ('gauss_next',))}"


def _dispatching(walk: Walk, value: functools.singledispatchmethod[Any]) -> str:
    # Python 3.13 keeps what it has found in it.
    more = _added(walk, value, ("dispatcher", "func", "_method_cache"))
    return f"singledispatchmethod({each(walk, (value.dispatcher, value.func))}){more}"


def _wrapper(walk: Walk, value: Any) -> str:
    """A ``staticmethod`` or ``classmethod``."""
    more = _added(walk, value, _OF_WRAPPERS)
    return f"{type(value).__name__}({walk.token(value.__func__)}){more}"


def _property(walk: Walk, value: property) -> str:
    return f"property({each(walk, (value.fget, value.fset, value.fdel))})"


def _cached_property(walk: Walk, value: Any) -> str:
    # Before Python 3.12, it has a lock.
    return f"cached_property({walk.token(value.func)}){_added(walk, value, _OF_CACHED)}"


def _own_cached_property(walk: Walk, value: Any) -> str:
    more = pairs(walk, ((k, v) for k, v in attributes_of(value).items() if k not in _OF_CACHED))
    return f"cached_property({walk.token(type(value))},{walk.token(value.func)},{more})"


_OF_CACHED = ("func", "attrname", "lock", "__doc__", "__module__")


def _view(walk: Walk, value: Any) -> str:
    """The keys, values or items of a dict, which changes with it."""
    return f"{type(value).__name__}({walk.inside('.mapping', value.mapping)})"


def _moment(walk: Walk, value: time.struct_time) -> str:
    parts: Any = value.__reduce__()[1]
    return f"struct_time({each(walk, parts)})"


def _logger(walk: Walk, value: logging.Logger) -> str:
    """What is logged is in no record, but what the user has added to it may be."""
    if again := walk.again(value):
        return again
    kind = "" if is_of_library(type(value)) else walk.token(type(value))
    return f"logger{kind}{_added(walk, value, _OF_LOGGERS)}"


_OF_LOGGERS = frozenset(vars(logging.Logger("")).keys() | {"manager"})


def enum_member(walk: Walk, value: enum.Enum) -> str:
    """A member of an enumeration, by its name."""
    of = walk.token(type(value))
    name = member_name(value)
    return named_member(of, name) if name else f"enum({of},{walk.token(value._value_)})"


def named_member(of: str, name: str) -> str:
    """A member of an enumeration, by what that is."""
    return f"enum({of}.{name})"


def member_name(value: Any) -> str:
    """The name of a member of an enumeration, if that has one; else empty."""
    if derived_rule(value) is not enum_member:
        return ""
    # Its class may say something else.
    name = value._name_
    return "" if (isinstance(value, enum.Flag) and name is None) or "|" in str(name) else str(name)


_CachedProperty: Any = vars(functools)["cached_property"]
_LRU_CACHE = type(functools.lru_cache(maxsize=1)(len))

EXACT: dict[type, Rule] = {
    type(None): lambda _walk, _value: "None",
    bool: lambda _walk, value: str(value),
    int: lambda _walk, value: f"i{value:#x}",
    float: _float,
    complex: _complex,
    str: _text,
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
    uuid.UUID: _uuid,
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
    struct.Struct: lambda _walk, value: f"struct({text(value.format)})",
    time.struct_time: _moment,
    **dict.fromkeys(map(type, ({}.keys(), {}.values(), {}.items())), _view),
    random.Random: _random,
    staticmethod: _wrapper,
    classmethod: _wrapper,
    property: _property,
    _CachedProperty: _cached_property,
    functools.singledispatchmethod: _dispatching,
    types.GenericAlias: hint_rule,
    # Of a class of its own, which says that it is the one above.
    type(collections.abc.Callable[[], None]): hint_rule,
    types.UnionType: hint_rule,
    typing.TypeVar: hint_rule,
    typing.ParamSpec: hint_rule,
    logging.Logger: _logger,
    logging.RootLogger: _logger,
}

PATCHABLE = frozenset(kind for kind in EXACT if not kind.__flags__ & 1 << 8)
"""Those of which the user may have put something into the class."""

_DERIVED: tuple[tuple[type, Rule], ...] = (
    (enum.Enum, enum_member),
    (pathlib.PurePath, _path),
    (logging.Logger, _logger),
    (_CachedProperty, _own_cached_property),
)


def derived_rule(value: Any) -> Rule | None:
    """The rule of a type and of what derives from it."""
    for kind, rule in _DERIVED:
        if issubclass(type(value), kind):
            return rule
    if type(value).__module__ == "typing":
        return hint_rule
    return None
