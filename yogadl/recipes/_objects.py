"""What objects of any class hold, whatever their classes do when they are asked."""

from __future__ import annotations

import builtins
import types
from collections.abc import Callable, Iterator
from typing import Any


def _arguments_of(value: BaseException) -> tuple[Any, ...]:
    return (*value.args, value.__cause__)


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


def contents(value: Any) -> Any:
    """What an object has as a string, a list and so on that it is, too; ``None`` if it is none."""
    for kind, take in _CONTENTS:
        if isinstance(value, kind):
            return take(value)
    return None


def attributes_of(value: Any) -> dict[str, Any]:
    """The ``__dict__`` of an object, whatever its class does when it is asked for attributes."""
    for kind in type(value).__mro__:
        found = vars(kind).get("__dict__")
        if isinstance(found, types.GetSetDescriptorType):
            kept: dict[str, Any] = found.__get__(value)
            return kept
    return {}


def kept(value: Any) -> Iterator[tuple[str, Any]]:
    """The attributes that an object has in its ``__dict__`` and its slots."""
    yield from attributes_of(value).items()
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
