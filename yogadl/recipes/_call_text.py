"""The arguments of a call as text: short enough to be kept, and other for other values."""

from __future__ import annotations

import collections
import gc
import inspect
import re
import reprlib
import types
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import xxhash

from yogadl.recipes._arrays import meaning_of
from yogadl.recipes._functions import unwrapped
from yogadl.recipes._objects import attributes_of, contents, kept
from yogadl.recipes._users import is_users_function

Array = np.ndarray[Any, Any]

# Long enough to tell calls apart, short enough to be kept and shown.
_LONGEST_ARGUMENTS = 1000
_LONGEST_VALUE = 200
# That are looked at, of all arguments together.
_MOST_ITEMS = 10_000
_SHOWN_OF_STRINGS = 40
_LARGEST_ARRAY = 64 << 20
# Text that is no UTF-8, such as names of files, is no reason to fail.
_ANY = ("utf-8", "surrogatepass")
# Of what is in a value, when it is asked whether the user's code would run.
_MOST_LOOKED_AT = 1000
_CODE = (type, types.BuiltinFunctionType, types.FunctionType, types.ModuleType)
# Which reprlib goes through.
_OPENED = frozenset((collections.deque, dict, frozenset, list, set, tuple))
_GENERATED = ("<string>", "<attrs generated")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def call_text(arguments: tuple[Any, ...], named: Mapping[str, Any]) -> str:
    """The arguments as Python writes them, as far as that is short.

    What is longer is cut, and followed by a digest of all of it. An array is as its bytes are, up
    to 64 MiB. An object that Python writes by its address is told by its class and by a digest of
    its attributes that are named as what its constructor takes, which may be secrets.
    """
    shorten = _Shortened()
    shown = [shorten.repr(value) for value in arguments]
    shown += [f"{key}={shorten.repr(named[key])}" for key in sorted(named)]
    return _cut(", ".join(shown), _LONGEST_ARGUMENTS)


def value_text(value: Any, is_secret: Callable[[str], Any]) -> str:
    """The same of a single value, of which objects are told by their attributes, but for those
    whose names say that they are secrets."""
    return _cut(_Opened(is_secret).repr(value), _LONGEST_ARGUMENTS)


class _Shortened(reprlib.Repr):
    """Values as :func:`call_text` writes them, for one call."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlong = _LONGEST_VALUE
        self.maxdict = self.maxlist = self.maxtuple = self.maxdeque = _MOST_ITEMS
        self.maxset = self.maxfrozenset = self.maxarray = _MOST_ITEMS
        self._left = _MOST_ITEMS

    def repr1(self, x: Any, level: int) -> str:
        self._left -= 1
        if self._left < 0 or level <= 0:
            return "..."
        if issubclass(type(x), np.ndarray):
            return self._of_array(x, level)
        if issubclass(type(x), type) and _is_written(_repr_of(type(x))):
            return _cut(f"<class '{x.__module__}.{x.__qualname__}'>")
        if type(x) in _OPENED:
            return super().repr1(x, level)
        if _repr_of(type(x)) is object.__repr__ or runs_users(x):
            return self._of_object(x, level)
        return super().repr1(x, level)

    def repr_str(self, x: str, level: int) -> str:  # noqa: ARG002 # as reprlib calls it
        return _cut(repr(x)) if len(x) <= _LONGEST_VALUE else _beginning(x, x.encode(*_ANY))

    def repr_bytes(self, x: bytes, level: int) -> str:  # noqa: ARG002 # likewise
        return _cut(repr(x)) if len(x) <= _LONGEST_VALUE else _beginning(x, x)

    def repr_instance(self, x: Any, level: int) -> str:  # noqa: ARG002 # likewise
        try:
            if _found_in(type(x), "__len__") is not None and len(x) > _MOST_ITEMS:
                return f"<{type(x).__name__} of {len(x)}>"
            # Where an object lies in memory says nothing of it.
            return _cut(_ADDRESS.sub("", repr(x)))
        except Exception:
            # A library's own may fail, too.
            return f"<{type(x).__name__}>"

    def _of_array(self, x: Array, level: int) -> str:
        if x.size <= _LONGEST_VALUE and not x.dtype.hasobject:
            shown = repr(x)
            if len(shown) <= _LONGEST_VALUE:
                return shown
        kind = f"{x.dtype}{list(x.shape)}"
        if x.dtype.hasobject:
            return f"<{kind} {self.repr1(x.tolist(), level - 1)}>"
        if x.nbytes > _LARGEST_ARRAY:
            return f"<{kind}>"
        return f"<{kind} {_digest(meaning_of(x))}>"

    def _of_object(self, x: Any, level: int) -> str:
        try:
            names = list(inspect.signature(type(x)).parameters)
        except (TypeError, ValueError):
            names = []
        had = attributes_of(x)
        values = self._content(x, level)
        values += [
            f"{name}={self.repr1(had[at], level - 1)}"
            for name in names
            for at in (name, f"_{name}")
            if at in had
        ]
        more = f" {_digest(', '.join(values).encode(*_ANY))}" if values else ""
        return f"<{type(x).__module__}.{type(x).__qualname__} object{more}>"

    def _content(self, x: Any, level: int) -> list[str]:
        """What an object has as a list, a number and so on that it is, too."""
        content = contents(x)
        return [] if content is None else [self.repr1(content, level - 1)]


class _Opened(_Shortened):
    """Values as :func:`value_text` writes them."""

    def __init__(self, is_secret: Callable[[str], Any]) -> None:
        super().__init__()
        self._is_secret = is_secret

    def _of_object(self, x: Any, level: int) -> str:
        values = self._content(x, level)
        values += [
            f"{name}={'…' if self._is_secret(name) else self.repr1(value, level - 1)}"
            for name, value in kept(x)
        ]
        return _cut(f"{type(x).__qualname__}({', '.join(values)})", _LONGEST_ARGUMENTS)


def runs_users(value: Any) -> bool:
    """Whether Python may run code of the user's to write a value: its own, or that of something
    in it. What Python or a library writes for a class, such as dataclasses, does no harm."""
    left, met = [value], set[int]()
    while left and len(met) < _MOST_LOOKED_AT:
        one = left.pop()
        if id(one) in met or issubclass(type(one), _CODE):
            continue
        met.add(id(one))
        if any(_is_written(_found_in(type(one), name)) for name in ("__repr__", "__len__")):
            return True
        left += gc.get_referents(one)
    return bool(left)


def _found_in(kind: type, name: str) -> Any:
    """What objects of a class have by a name, without asking them or it."""
    return next((vars(one)[name] for one in kind.__mro__ if name in vars(one)), None)


def _repr_of(kind: type) -> Any:
    return _found_in(kind, "__repr__")


def _is_written(method: Any) -> bool:
    """Whether the user has written a method."""
    if not isinstance(method, types.FunctionType):
        return False
    inner = unwrapped(method)
    return isinstance(inner, types.FunctionType) and (
        not inner.__code__.co_filename.startswith(_GENERATED) and is_users_function(inner)
    )


def _digest(content: Any) -> str:
    return f"#{xxhash.xxh3_64_hexdigest(content)}"


def _cut(text: str, longest: int = _LONGEST_VALUE) -> str:
    """A text, its end replaced by a digest of it if it is long."""
    if len(text) <= longest:
        return text
    digest = _digest(text.encode(*_ANY))
    return f"{text[: longest - len(digest) - 4]}... {digest}"


def _beginning(value: str | bytes, content: bytes) -> str:
    """The beginning of a long string, and a digest of all of it."""
    return f"{value[:_SHOWN_OF_STRINGS]!r}... {_digest(content)}"
