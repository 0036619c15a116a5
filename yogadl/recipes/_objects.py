"""What objects of any class hold, whatever their classes do when they are asked."""

from __future__ import annotations

import builtins
import collections
import datetime
import decimal
import functools
import random
import types
from collections.abc import Callable, Iterator
from typing import Any


def _arguments_of(value: BaseException) -> tuple[Any, ...]:
    return (*value.args, value.__cause__)


def _time_of(value: datetime.datetime | datetime.time) -> tuple[Any, ...]:
    """A ``datetime`` or ``time``, which classes of one's own may write otherwise."""
    kind: Any = datetime.datetime if isinstance(value, datetime.datetime) else datetime.time
    zone, fold = (vars(kind)[it].__get__(value) for it in ("tzinfo", "fold"))
    return kind.isoformat(kind.replace(value, tzinfo=None)), fold, zone


def _queue_of(value: collections.deque[Any]) -> tuple[Any, ...]:
    kind = collections.deque
    return vars(kind)["maxlen"].__get__(value), tuple(kind.__iter__(value))


def _nothing(_value: Any) -> None:
    """Of types of which all that counts is in their slots."""


_WRAPPERS = (property, staticmethod, classmethod)
_COPIED = frozenset((*functools.WRAPPER_ASSIGNMENTS, "__type_params__"))
_OF_WRAPPERS = _COPIED | {"__wrapped__"}
OF_DISPATCHERS = frozenset(("_clear_cache", "dispatch", "register", "registry"))
"""What ``functools.singledispatch`` puts on what it makes."""

# Those of derived classes come before what they derive from.
_CONTENTS: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (str, str.__str__),
    (bytes, lambda value: bytes(memoryview(value))),
    (bool, bool),
    (int, int.__index__),
    (float, float.__float__),
    (complex, lambda value: complex(value.real, value.imag)),
    (tuple, lambda value: tuple(tuple.__iter__(value))),
    (list, lambda value: tuple(list.__iter__(value))),
    (collections.OrderedDict, lambda value: tuple(collections.OrderedDict.items(value))),
    (collections.defaultdict, lambda value: tuple(dict.items(value))),
    (dict, lambda value: tuple(dict.items(value))),
    (collections.deque, _queue_of),
    (frozenset, lambda value: frozenset(frozenset.__iter__(value))),
    (set, lambda value: frozenset(set.__iter__(value))),
    (bytearray, lambda value: bytes(memoryview(value))),
    (BaseException, _arguments_of),
    (datetime.datetime, _time_of),
    (datetime.time, _time_of),
    (datetime.date, datetime.date.toordinal),
    (datetime.timedelta, _nothing),
    (decimal.Decimal, decimal.Decimal.__str__),
    (random.Random, random.Random.getstate),
    *((kind, _nothing) for kind in _WRAPPERS),
)

# Where classes that attrs has made keep their hashes.
_HASH = "_attrs_cached_hash"

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


def contents(value: Any) -> Any:
    """What an object has as a string, a list and so on that it is, too; ``None`` if it is none."""
    for kind, take in _CONTENTS:
        if issubclass(type(value), kind):
            return take(value)
    return None


def attributes_of(value: Any) -> dict[str, Any]:
    """The ``__dict__`` of an object, whatever its class does when it is asked for attributes."""
    for kind in type(value).__mro__:
        found = vars(kind).get("__dict__")
        # The latter of types.SimpleNamespace.
        if isinstance(found, types.GetSetDescriptorType | types.MemberDescriptorType):
            try:
                kept: dict[str, Any] = found.__get__(value)
            except AttributeError:
                # Some that are made in C say that they have one, and have none.
                continue
            return kept
    return {}


def hides_attributes(kind: type) -> bool:
    """Whether a class has something else for ``__dict__``, so that nobody gets at what there is."""
    found = [vars(one)["__dict__"] for one in kind.__mro__ if "__dict__" in vars(one)]
    of_python = (types.GetSetDescriptorType, types.MemberDescriptorType)
    return bool(found and kind.__dictoffset__) and not any(
        isinstance(it, of_python) for it in found
    )


def added(value: Any) -> dict[str, Any]:
    """The same without what ``functools.update_wrapper`` has copied, such as docstrings and names
    of modules, which count with what they are of."""
    found = attributes_of(value)
    wrapped = found.get("__wrapped__")
    if wrapped is None:
        return found
    is_function = isinstance(wrapped, types.FunctionType)
    is_of_dispatcher = type(found.get("registry")) is types.MappingProxyType
    copied = _COPIED | OF_DISPATCHERS if is_of_dispatcher else _COPIED
    return {
        name: it
        for name, it in found.items()
        if name not in copied
        or it
        is not (getattr(wrapped, name, ()) if is_function else attributes_of(wrapped).get(name))
    }


def kept(value: Any) -> Iterator[tuple[str, Any]]:
    """The attributes that an object has in its ``__dict__`` and its slots."""
    # What is there of what they wrap counts with that.
    left_out = _OF_WRAPPERS if issubclass(type(value), _WRAPPERS) else frozenset[str]()
    yield from (it for it in added(value).items() if it[0] not in left_out)
    for kind in type(value).__mro__:
        for name, slot in vars(kind).items():
            if name == "__dict__" or name in left_out:
                continue
            if isinstance(slot, types.MemberDescriptorType):
                try:
                    yield name, slot.__get__(value)
                except AttributeError:
                    continue


def is_of_process(value: Any, name: str, attribute: Any) -> bool:
    """Whether an attribute only keeps what its object says of itself, and in every process says
    otherwise: its hash, or where another attribute lies in memory."""
    if name == _HASH:
        return True
    if name.rstrip("_").endswith("_id") and type(attribute) is int:
        return any(id(it) == attribute for _, it in kept(value))
    return False


def has_hidden_state(kind: type) -> bool:
    """Whether objects of a class have more than their ``__dict__``, slots and contents."""
    if issubclass(kind, random.SystemRandom):
        return True
    base = next((one for one, _ in _CONTENTS if issubclass(kind, one)), object)
    expected = base.__basicsize__
    # Python keeps the __dict__ and weak references before the object, from 3.11 and 3.12 on.
    is_inside = kind.__dictoffset__ > 0 or (kind.__dictoffset__ < -1 and kind.__itemsize__ > 0)
    if is_inside and not base.__dictoffset__:
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


def without_hash(value: Any) -> str:
    """What a class is, or an object of one, that cannot be looked up, for errors."""
    kind = type(value)
    of_kind: Any = kind if issubclass(kind, type) else type(kind)
    if of_kind is type or of_kind.__hash__ is not None:
        return ""
    what = "a class" if of_kind is kind else "an object of a class"
    name = f"{of_kind.__module__}.{of_kind.__qualname__}"
    return f"{what} of {name}, which has an __eq__ and no __hash__ (add `__hash__ = type.__hash__`)"
